"""A worker's machine: where it runs, by which addresses it finds Redis and the database, and what time it has.

`Remote` is a network namespace with two cables, one to Redis and one to the database; either can be pulled. The
kernel clears the namespace and its cables away when the process that holds it ends.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Literal

from tests.node.harness.network import NetworkError, free_blocks
from tests.remains import alias
from tests.topologies.network import held, inside, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Address, IPv4Network

    from tests.processes import Process

LOOPBACK = "127.0.0.1"
Far = Literal["redis", "database"]
ELSEWHERE_METRIC = "1000"
_choosing = threading.Lock()  # two lanes must not find the same addresses free


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine itself; a worker on it finds everything at 127.0.0.1."""

    enter: tuple[str, ...] = ()
    redis: str = LOOPBACK
    database: str = LOOPBACK
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cable:
    """A pair of interfaces: `name` is our end, with the address that the other end finds us at."""

    name: str
    network: IPv4Network

    @property
    def here(self) -> IPv4Address:
        return self.network[1]

    @property
    def there(self) -> IPv4Address:
        return self.network[2]

    def lay(self, holder: Process, far_name: str) -> None:
        _ip("link", "add", self.name, "type", "veth", "peer", "name", far_name, "netns", str(holder.pid))
        _ip("address", "add", f"{self.here}/30", "dev", self.name)
        _ip("link", "set", self.name, "up", *alias())
        far_ip = (*inside(holder), "ip")
        run(*far_ip, "address", "add", f"{self.there}/30", "dev", far_name)
        run(*far_ip, "link", "set", far_name, "up")

    @contextmanager
    def pulled(self) -> Iterator[None]:
        """Packets of either end are dropped without an error."""
        # What we have to say to the other end goes nowhere, and not to some gateway.
        nowhere = ("blackhole", str(self.network), "metric", ELSEWHERE_METRIC)
        _ip("route", "add", *nowhere)
        try:
            _ip("link", "set", self.name, "down")
            yield
        finally:
            _ip("link", "set", self.name, "up")
            _ip("route", "delete", *nowhere)


@dataclass
class Remote:
    """A machine of its own, on two cables. Takes root."""

    holder: Process
    cables: dict[Far, Cable]

    @classmethod
    def start(cls) -> Remote:
        holder = held()
        with _choosing:
            block = next(iter(free_blocks()), None)
            if block is None:
                raise NetworkError("no addresses are free for a worker's machine: see `ip route`")
            first, second, *_ = block.network.subnets(new_prefix=30)
            tag = token_hex(4)
            cables: dict[Far, Cable] = {
                "redis": Cable(f"dq-{tag}-r", first),
                "database": Cable(f"dq-{tag}-d", second),
            }
            for name, cable in cables.items():
                cable.lay(holder, name)
        return cls(holder, cables)

    @property
    def machine(self) -> Machine:
        redis, database = (str(self.cables[far].here) for far in ("redis", "database"))
        return Machine(inside(self.holder), redis, database)

    def stop(self) -> None:
        self.holder.kill()


def _ip(*args: str) -> None:
    run("ip", *args)

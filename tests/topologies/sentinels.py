"""Three Sentinels that watch a primary with two replicas. Any of the six can be killed, frozen and started again.

Not here: waiting by asking again and again. Sentinels announce a promotion, and that is what is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from delayq.contract.acl import sentinel_rule
from redis import Redis
from redis.exceptions import RedisError

from tests.processes import Gone, Process
from tests.servers import (
    LOOPBACK,
    PASSWORD,
    USER,
    Killable,
    RedisServer,
    binary,
    on_a_free_port,
    users,
)
from tests.topologies.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from delayq.protocol.keys import Keys

    from tests.servers import Clock
    from tests.topologies.certificates import Tls
    from tests.topologies.network import Machine

MASTER = "mymaster"
QUORUM, REPLICAS = 2, 2


@dataclass
class Sentinel(Killable):
    """One of them. It writes what it learns into its file, and reads it at its next start."""

    flavour: str
    dir: Path
    port: int
    host: str = LOOPBACK
    enter: tuple[str, ...] = ()
    tls: Tls | None = None
    cut_off: bool = False  # it answers only machines on its side of the cut
    process: Process = field(init=False)

    @classmethod
    def start(
        cls,
        flavour: str,
        *,
        dir: Path,  # noqa: A002  as for a server
        primary: RedisServer,
        down_after_ms: int,
        **options: Any,  # noqa: ANN401  the fields above
    ) -> Sentinel:
        dir.mkdir(parents=True, exist_ok=True)

        def made(port: int) -> Sentinel:
            sentinel = cls(flavour, dir, port, **options)
            sentinel.write(primary, down_after_ms)
            return sentinel

        return on_a_free_port(made)

    def write(self, primary: RedisServer, down_after_ms: int) -> None:
        users(self.dir, sentinel_rule())
        port = str(self.port)
        ports = {"port": port} if self.tls is None else {"port": "0", "tls-port": port, **self.tls.settings()}
        ports.pop("tls-cluster", None)
        settings = {
            "bind": self.host,
            "dir": str(self.dir),
            "aclfile": str(self.dir / "users.acl"),
            **ports,
            **({} if self.host == LOOPBACK else {"protected-mode": "no"}),
            f"sentinel monitor {MASTER}": f"{primary.host} {primary.port} {QUORUM}",
            f"sentinel down-after-milliseconds {MASTER}": str(down_after_ms),
            f"sentinel failover-timeout {MASTER}": "10000",
            f"sentinel parallel-syncs {MASTER}": "2",
        }
        (self.dir / "sentinel.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in settings.items())
        )

    def launch(self) -> None:
        argv = (*self.enter, str(binary(self.flavour)), str(self.dir / "sentinel.conf"), "--sentinel")
        self.run("[+]monitor master", *argv, cwd=self.dir)

    def client(self) -> Redis:
        """The harness' own, which may ask for anything."""
        tls: dict[str, Any] = {} if self.tls is None else self.tls.options()
        return Redis(host=self.host, port=self.port, socket_timeout=20, decode_responses=True, **tls)

    def primary(self) -> int:
        """The port of whom it believes to be the primary."""
        with self.client() as client:
            found: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(found[1])

    def restart(self) -> None:
        self.kill()
        self.launch()

    @property
    def answers(self) -> bool:
        return self.process.alive and not self.paused and not self.cut_off


@dataclass
class Sentinels:
    """A primary, its replicas, and who decides which is which."""

    flavour: str
    servers: list[RedisServer]
    sentinels: list[Sentinel]
    tls: Tls | None = None

    @classmethod
    def start(
        cls,
        flavour: str,
        *,
        dir: Path,  # noqa: A002  as for a server
        down_after_ms: int = 1000,
        movable_clock: bool = False,
        config: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        machines: Sequence[Machine] = (),
        **options: Any,  # noqa: ANN401  RedisServer.start's
    ) -> Sentinels:
        """Start all, and wait until replicas hold what the primary does and Sentinels know each other.

        With three machines, each has a server and a Sentinel; without, all are on this one.
        """
        places: list[dict[str, Any]] = [{"host": each.host, "enter": each.enter} for each in machines] or [
            {}
        ] * 3
        # A primary whose clock jumps must not take its replicas for gone.
        patient = {"repl-timeout": str(2**31 - 1)} if movable_clock else {}
        settings = {"repl-diskless-sync-delay": "0", **patient, **(config or {})}
        made = cls(flavour, [], [], tls)
        try:
            for number in range(1 + REPLICAS):
                server = RedisServer.start(
                    flavour,
                    dir=dir / f"redis-{number}",
                    movable_clock=movable_clock and not number,
                    config=settings,
                    tls=tls,
                    **places[number],
                    **options,
                )
                made.servers.append(server)
                if number:
                    server.follow(made.servers[0])
            for number in range(3):
                made.sentinels.append(
                    Sentinel.start(
                        flavour,
                        dir=dir / f"sentinel-{number}",
                        primary=made.servers[0],
                        down_after_ms=down_after_ms,
                        tls=tls,
                        **places[number],
                    )
                )
            until(made.well, "Sentinels know each other and all replicas")
        except BaseException:
            made.stop()
            raise
        return made

    def well(self) -> bool:
        """Whether every Sentinel sees all servers and Sentinels, and all replicas hold what the primary does."""
        with self.primary().client() as client:
            role: Any = client.execute_command("ROLE")
            if len(role[2]) < len(self.servers) - 1:
                return False
        return all(self._knows_all(sentinel) for sentinel in self.sentinels if sentinel.answers)

    def _knows_all(self, sentinel: Sentinel) -> bool:
        with sentinel.client() as client:
            found: Any = client.execute_command("SENTINEL", "MASTER", MASTER)
        known = int(found["num-slaves"]), int(found["num-other-sentinels"])
        return known == (len(self.servers) - 1, len(self.sentinels) - 1) and found["flags"] in (
            "master",
            {"master"},
        )

    # what tests of a single server ask it for, too

    @property
    def clock(self) -> Clock | None:
        return self.servers[0].clock

    @property
    def url(self) -> str:
        """Where and as whom delayq connects: the same name and password serve for Sentinels, too."""
        scheme = "redis" if self.tls is None else "rediss"
        query = {"sentinel_username": USER, "sentinel_password": PASSWORD}
        more = "" if self.tls is None else f"&{self.tls.query()}"
        places = ",".join(f"{each.host}:{each.port}" for each in self.sentinels)
        return f"{scheme}+sentinel://{USER}:{PASSWORD}@{places}/{MASTER}/0?{urlencode(query)}{more}"

    @property
    def version(self) -> tuple[int, ...]:
        return self.servers[0].version

    def client(self, *, decode: bool = True) -> Redis:
        return self.primary().client(decode=decode)

    def on(self, keys: Keys) -> Redis:
        return self.primary().on(keys)

    def all(self) -> list[RedisServer]:
        return [self.primary()]

    def now_ms(self) -> int:
        return self.primary().now_ms()

    def reset(self) -> None:
        self.primary().reset()

    def stop(self) -> None:
        for process in [each.process for each in self.sentinels] + [each.process for each in self.servers]:
            process.kill()

    # fail-over

    def primary(self) -> RedisServer:
        """Who it is, as the first Sentinel that answers has it."""
        port = next(each for each in self.sentinels if each.answers).primary() if self.sentinels else None
        return self.servers[0] if port is None else next(each for each in self.servers if each.port == port)

    def replicas(self) -> list[RedisServer]:
        primary = self.primary()
        return [each for each in self.servers if each is not primary]

    def promoting(self) -> Promotion:
        """Listen from now on; use it in a `with` block around what makes them promote."""
        return Promotion(next(each for each in self.sentinels if each.answers))

    def wait_well(self, *, timeout_s: float = 60) -> float:
        """Until every server that runs follows the primary, and all Sentinels that answer know it."""
        return until(self.well, "all follow the primary", timeout_s=timeout_s)


class Promotion:
    """What a Sentinel announces: `wait()` returns the new primary's port when it says `+switch-master`."""

    def __init__(self, sentinel: Sentinel) -> None:
        client: Any = sentinel.client()
        self._client = client
        self._channel: Any = client.pubsub(ignore_subscribe_messages=False)

    def __enter__(self) -> Self:
        self._channel.subscribe("+switch-master")
        self._channel.get_message(timeout=20)  # it has heard that we listen
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._client.close()

    def wait(self, *, timeout_s: float = 60) -> int:
        for message in self._messages(timeout_s):
            if message["type"] == "message":
                return int(str(message["data"]).split()[4])
        raise Gone(f"no promotion within {timeout_s:g} s")

    def _messages(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        try:
            while message := self._channel.get_message(timeout=timeout_s):
                yield message
        except RedisError as error:
            raise Gone(f"the Sentinel that was listened to is gone: {error}") from error

"""Machines of their own on one switch, each of which can be cut off: its processes continue, and reach no other one.

The kernel clears all of it away when the processes that hold the namespaces end. Takes root.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Self

from tests.node.harness import programs
from tests.node.harness.network import NetworkError, free_blocks
from tests.processes import Process
from tests.remains import alias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Network

HOLD = "ip link set lo up && echo up && exec sleep infinity"


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace with one address. `enter` goes in front of a command to run it there."""

    holder: Process
    name: str
    host: str

    @property
    def enter(self) -> tuple[str, ...]:
        return inside(self.holder)


@dataclass
class Switch:
    """Where all machines are plugged in, and this one, too."""

    holder: Process
    network: IPv4Network
    tag: str
    machines: list[Machine] = field(default_factory=list)

    @classmethod
    def start(cls) -> Self:
        holder = held()
        block = next(iter(free_blocks()), None)
        if block is None:
            raise NetworkError("no addresses are free for a switch: see `ip route`")
        [network, *_] = block.network.subnets(new_prefix=max(block.network.prefixlen, 27))
        made = cls(holder, network, token_hex(3))
        run(*inside(holder), "ip", "link", "add", "switch", "type", "bridge")
        run(*inside(holder), "ip", "link", "set", "switch", "up")
        made._plug(None, f"dq-{made.tag}", "here", made.network[1])
        run("ip", "link", "set", f"dq-{made.tag}", *alias())
        return made

    def machine(self, name: str) -> Machine:
        """One more."""
        holder = held()
        machine = Machine(holder, f"to-{name}", str(self.network[2 + len(self.machines)]))
        self._plug(holder, "eth0", machine.name, machine.host)
        self.machines.append(machine)
        return machine

    def _plug(self, holder: Process | None, far: str, name: str, address: object) -> None:
        """Lay a cable to a machine, or to this one."""
        pid, there = (os.getpid(), ()) if holder is None else (holder.pid, inside(holder))
        here = inside(self.holder)
        run(*here, "ip", "link", "add", "name", name, "type", "veth", "peer", "name", far, "netns", str(pid))
        run(*here, "ip", "link", "set", name, "master", "switch", "up")
        run(*there, "ip", "address", "add", f"{address}/{self.network.prefixlen}", "dev", far)
        run(*there, "ip", "link", "set", far, "up")

    @contextmanager
    def cut(self, *machines: Machine) -> Iterator[None]:
        """Drop all packets between these machines and others, without an error to either."""
        with ExitStack() as stack:
            for machine in machines:
                self.pull(machine)
                stack.callback(self.plug, machine)
            yield

    def pull(self, machine: Machine) -> None:
        run(*inside(self.holder), "ip", "link", "set", machine.name, "nomaster")

    def plug(self, machine: Machine) -> None:
        run(*inside(self.holder), "ip", "link", "set", machine.name, "master", "switch")

    def stop(self) -> None:
        for machine in self.machines:
            machine.holder.kill()
        self.holder.kill()


def held() -> Process:
    """The process of a new network namespace."""
    holder = Process.start("unshare", "--net", "--", "sh", "-c", HOLD, env=programs.environment())
    holder.wait_line("^up$")
    return holder


def inside(holder: Process) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--")


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=programs.environment(), check=False)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(argv)}: {done.stderr.strip()}")

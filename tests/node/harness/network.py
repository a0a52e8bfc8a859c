"""Addresses for a node that are free on this machine, and the pair of interfaces that leads there.

All of a node's addresses are in one block of 4,096. The host gets one route to it, which goes with the interface.
"""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final

from tests.node.harness import programs
from tests.remains import alias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.node.harness.sandbox import Sandbox

RANGE: Final = IPv4Network("100.64.0.0/10")
"""For carriers' own use (RFC 6598): hardly ever on a developer's machine or in a CI's network."""
BLOCK: Final = 20
LONGEST_INTERFACE: Final = 15


class NetworkError(Exception):
    """No block of addresses, or `ip` refused something; the message is its own."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is what among a node's addresses."""

    network: IPv4Network

    @property
    def host(self) -> IPv4Address:
        """This machine's end of the pair."""
        return self.network[1]

    @property
    def node(self) -> IPv4Address:
        """The node's end: its own address, and the API server's."""
        return self.network[2]

    @property
    def pods(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=22))[1]

    @property
    def services(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=22))[2]


def free_blocks() -> Iterable[Block]:
    """Blocks that no route of this machine leads into, in a random order."""
    taken = [
        _destination(route["dst"]) for route in json.loads(_ip("-json", "route", "show", "table", "all"))
    ]
    blocks = list(RANGE.subnets(new_prefix=BLOCK))
    random.shuffle(blocks)
    for network in blocks:
        if not any(each is not None and each.overlaps(network) for each in taken):
            yield Block(network)


def _destination(text: str) -> IPv4Network | None:
    if text in {"default", "0.0.0.0/0"} or ":" in text:
        return None
    return IPv4Network(text, strict=False)


def connect(sandbox: Sandbox, interface: str) -> Block:
    """Join the sandbox to this machine; the interface is this machine's end, and must be a new name."""
    for block in free_blocks():
        try:
            _join(sandbox, interface, block)
        except NetworkError as error:
            if "File exists" not in str(error):
                raise
            _ip("link", "delete", interface)  # another node was faster to take this block
            continue
        return block
    raise NetworkError(f"every /{BLOCK} of {RANGE} overlaps with a route of this machine: see `ip route`")


def interface_of(name: str) -> str:
    """This machine's end of a node's pair. The last digits of its name tell apart what runs at the same time."""
    return f"dq{name.replace('-', '')[-(LONGEST_INTERFACE - 2) :]}"


def disconnect(interface: str) -> bool:
    """Remove the pair, both ends; False when it is gone.

    It would go with the node's namespace, but that lasts for as long as the kernel closes connections in there: when
    both ends were killed and an answer is outstanding, up to two minutes.
    """
    try:
        _ip("link", "delete", interface)
    except NetworkError as error:
        if "Cannot find device" not in str(error):
            raise
        return False
    return True


def _join(sandbox: Sandbox, interface: str, block: Block) -> None:
    _ip("link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", str(sandbox.pid))
    _ip("address", "add", f"{block.host}/30", "dev", interface)
    _ip("link", "set", interface, "up", *alias())
    sandbox.run("ip", "address", "add", f"{block.node}/30", "dev", "eth0")
    sandbox.run("ip", "link", "set", "eth0", "up")
    # There is no way out of the node but to this machine. And a Service's address needs a route for a connection to
    # get as far as kube-proxy's rules, which lead it elsewhere.
    sandbox.run("ip", "route", "add", str(block.services), "dev", "eth0")
    sandbox.run("ip", "route", "add", "unreachable", "default")
    _ip("route", "add", str(block.network), "via", str(block.node), "dev", interface)


def _ip(*args: str) -> str:
    done = subprocess.run(
        ["ip", *args], capture_output=True, text=True, env=programs.environment(), check=False
    )
    if done.returncode != 0:
        raise NetworkError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout

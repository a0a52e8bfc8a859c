"""The ways in which Redis is had: one server, one behind TLS, a primary that Sentinels watch, a Cluster.

Tests of verbs and clients run on each; each has a clock that can be moved, and is started once.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from tests.servers import FLAVOURS, PREFERRED, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import Sentinels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S = TypeVar("S", RedisServer, Cluster, Sentinels)
Servers = RedisServer | Cluster | Sentinels

TOPOLOGIES: Final = ("tls", "sentinel", "cluster")
"""Each with the flavour that most have; only that of Debian is built with TLS."""
MORE_CLUSTERS: Final = tuple(f"cluster-{flavour}" for flavour in FLAVOURS if flavour != PREFERRED)
PATIENT_MS: Final = 60_000
"""A test may keep a server busy for longer than a Sentinel would look on."""
MOVED_TO_MS: Final = 1_893_456_000_000
"""Where the clock of tests stands. A Cluster is there from the start: it bears jumps of days, not of years."""


def flavour_of(kind: str) -> str:
    """The binary that a topology is made of."""
    if kind in FLAVOURS:
        return kind
    return kind.partition("-")[2] or PREFERRED


def start(kind: str, directory: Path) -> Servers:
    flavour = flavour_of(kind)
    if kind == "sentinel":
        return Sentinels.start(flavour, dir=directory, movable_clock=True, down_after_ms=PATIENT_MS)
    if kind.startswith("cluster"):
        ahead_ms = MOVED_TO_MS - time.time_ns() // 1_000_000
        return Cluster.start(flavour, dir=directory, movable_clock=True, base_ms=ahead_ms)
    tls = Tls(directory / "tls") if kind == "tls" else None
    return RedisServer.start(flavour, dir=directory, movable_clock=True, tls=tls)


@contextmanager
def stopping(servers: S) -> Iterator[S]:
    """Stop them at the end of the block."""
    try:
        yield servers
    finally:
        servers.stop()

"""What tests of whole processes ask for: fleets on Redis servers of their own, and a seed for chance."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.process.fleet import fleets
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import Sentinels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import NewFleet


@pytest.fixture
def new_fleet(flavour: str, tmp_path: Path, queue_name: str) -> Iterator[NewFleet]:
    """Makes fleets: each on a server of its own, with AOF by default, or on one that is there."""
    with fleets(tmp_path, flavour, queue_name) as make:
        yield make


@pytest.fixture
def chance() -> random.Random:
    """Drawn anew in each run; `CHAOS_SEED=…` repeats one, and pytest shows it when the test fails."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def cluster(flavour: str, tmp_path: Path) -> Iterator[Cluster]:
    """A Cluster of the test's own."""
    servers = Cluster.start(flavour, dir=tmp_path / "cluster")
    yield servers
    servers.stop()


@pytest.fixture
def sentinels(flavour: str, tmp_path: Path) -> Iterator[Sentinels]:
    """A primary, its replicas and Sentinels of the test's own."""
    servers = Sentinels.start(flavour, dir=tmp_path / "sentinels")
    yield servers
    servers.stop()

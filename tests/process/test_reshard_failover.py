"""Primaries are killed while tasks move between shards, under load: what replicas had is not lost, and not early.

What is due in an hour moves; what is due within a second runs meanwhile.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
import yaml
from delayq import Durability, NewTask, SyncClient
from delayq.errors import DelayQError
from delayq.protocol.keys import Keys
from delayq.protocol.results import Cancelled, State
from delayq.protocol.shard_map import ShardMap
from redis.exceptions import RedisError

from tests.process.fleet import check_runs, until
from tests.topologies.sentinels import REPLICAS, Sentinels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import Fleet, NewFleet
    from tests.servers import RedisServer
    from tests.topologies.cluster import Cluster

HOUR_MS = 3_600_000
FIRST = 4000  # tasks that wait before anything moves
SPEC = {
    "worker": {"concurrency": 50},
    "delivery": {"leaseDurationSeconds": 2, "maxCrashes": 1000},
    "durability": {"confirm": "Replicated"},
}


@dataclass(eq=False)
class Load(threading.Thread):
    """Stores tasks of which replicas have to confirm each: half of them run soon, half wait."""

    client: SyncClient
    ended: threading.Event = field(default_factory=threading.Event)
    soon: list[str] = field(default_factory=list)  # confirmed
    far: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        nth = 0
        while not self.ended.wait(0.1):
            nth += 1
            for kind, delay_ms in (("soon", nth % 10 * 100), ("far", HOUR_MS)):
                ids = [f"{kind}-{nth}-{n}" for n in range(10)]
                try:
                    self.client.schedule_many(NewTask(None, delay_ms=delay_ms, task_id=id_) for id_ in ids)
                except DelayQError:
                    continue  # nobody was told that they are stored
                getattr(self, kind).extend(ids)


@dataclass
class Move:
    """A queue whose tasks move from two shards to three, or back."""

    fleet: Fleet
    servers: Cluster | Sentinels
    client: SyncClient
    load: Load
    first: list[str]

    def shard_map(self) -> ShardMap | None:
        keys = Keys("delayq", self.fleet.queue, 0)
        try:
            found = self.servers.on(keys).get(keys.shard_map)
        except (RedisError, StopIteration):
            return None  # nobody is primary just now
        return ShardMap.parse(cast("bytes", found).decode()) if found else None

    def want(self, shards: int) -> None:
        """As the owner of the document does: it says another number, and a scanner is started that has read it."""
        document = yaml.safe_load(self.fleet.config.read_text())
        document["spec"]["shards"] = shards
        generation = document["metadata"].get("generation", 1) + 1
        document["metadata"] |= {"uid": "u", "generation": generation}
        self.fleet.config.write_text(yaml.safe_dump(document))
        self.fleet.start("scanner", ready=False)

    def wait_moving(self) -> None:
        def moving() -> bool:
            found = self.shard_map()
            return found is not None and found.moves and self.moved() > 0

        until(moving, "tasks move", timeout_s=60)

    def moved(self) -> int:
        found = 0
        for shard in range(4):
            keys = Keys("delayq", self.fleet.queue, shard)
            with_moving = self.servers.on(keys)
            found += int(with_moving.zcard(keys.moving)) + int(with_moving.hget(keys.stats, "moved") or 0)
        return found

    def wait_settled(self, shards: int) -> None:
        def settled() -> bool:
            found = self.shard_map()
            return found is not None and found.settled and found.shards == shards

        print(f"settled after {until(settled, f'settled with {shards}', timeout_s=120):.1f} s")

    def check(self, shards: int) -> None:
        """Every confirmed task has run once it was due, or waits at its home."""
        self.load.ended.set()
        self.load.join()
        until(lambda: self.fleet.starts().keys() >= set(self.load.soon), "all ran", timeout_s=60)
        check_runs(self.fleet.starts())
        far = [*self.first, *self.load.far]
        assert far
        for shard in range(shards):
            keys = Keys("delayq", self.fleet.queue, shard)
            held = cast("list[bytes]", self.servers.on(keys).hkeys(keys.tasks))
            now = ShardMap.first(shards)
            assert {now.home(raw.decode()) for raw in held} <= {shard}
        kept = {row.id for row in self.client.list(State.SCHEDULED, limit=len(far) * 3)}
        assert set(far) - kept == set(), "lost"
        assert self.client.cancel(far[0]) is Cancelled.CANCELLED
        assert len(self.load.soon) > 100
        assert len(self.load.far) > 100


@contextmanager
def moving(new_fleet: NewFleet, servers: Cluster | Sentinels, *, replicas: int) -> Iterator[Move]:
    """Tasks are about to move from two shards to three, under load; the block ends them."""
    spec = {**SPEC, "shards": 2}
    fleet = new_fleet(spec, server=cast("RedisServer", servers))
    fleet.start_all("scanner", "worker")
    durability = Durability("Replicated", replicas=replicas, timeout_ms=2000)
    first = [f"first-{n}" for n in range(FIRST)]
    with (
        SyncClient(servers.url, queue=fleet.queue, durability=durability) as client,
        SyncClient(servers.url, queue=fleet.queue, durability=durability) as loading,
    ):
        client.schedule_many(NewTask(None, delay_ms=HOUR_MS, task_id=id_) for id_ in first)
        load = Load(loading)
        load.start()
        try:
            yield Move(fleet, servers, client, load, first)
        finally:
            load.ended.set()
            load.join()


@pytest.mark.parametrize("side", ["old", pytest.param("new", marks=pytest.mark.full)])
def test_a_primary_of_a_cluster_is_killed_while_tasks_move(
    new_fleet: NewFleet, cluster: Cluster, side: str
) -> None:
    with moving(new_fleet, cluster, replicas=1) as move:
        move.want(3)
        move.wait_moving()
        keys = Keys("delayq", move.fleet.queue, 0 if side == "old" else 2)
        old = cluster.serving(keys.slot)
        replica = cluster.replica_of(old)
        old.kill()
        cluster.wait_promoted(replica)
        old.restart()
        move.wait_settled(3)
        time.sleep(1)  # of load by the new shard map
        move.check(3)


def test_a_primary_behind_sentinels_is_killed_while_tasks_move(
    new_fleet: NewFleet, sentinels: Sentinels
) -> None:
    with moving(new_fleet, sentinels, replicas=REPLICAS) as move:
        move.want(3)
        move.wait_moving()
        with sentinels.promoting() as promotion:
            old = sentinels.primary()
            old.kill()
            promotion.wait()
        old.restart()
        move.wait_settled(3)
        time.sleep(1)  # of load by the new shard map
        move.check(3)


@pytest.mark.full
def test_who_asks_for_another_number_while_tasks_move_has_it_afterwards(
    new_fleet: NewFleet, sentinels: Sentinels
) -> None:
    """From two to five, and back to two before that has come to its end."""
    with moving(new_fleet, sentinels, replicas=REPLICAS) as move:
        move.want(5)
        move.wait_moving()
        move.want(2)
        move.wait_settled(2)
        move.check(2)

"""A primary is killed while tasks move between shards, under load: what replicas had is not lost, and not early.

What is due in an hour moves; what is due within a second runs meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from delayq import Durability, NewTask, SyncClient
from delayq.protocol.keys import Keys
from delayq.protocol.results import State
from delayq.protocol.shard_map import ShardMap
from redis.exceptions import RedisError

from tests.process.fleet import check_runs, until
from tests.process.storm import Producer, producing

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet
    from tests.servers import RedisServer
    from tests.topologies.cluster import Cluster

HOUR_MS = 3_600_000
FIRST = [f"first-{n}" for n in range(4000)]  # tasks that wait before anything moves
BEFORE, AFTER = 2, 3
SPEC = {
    "shards": BEFORE,
    "worker": {"concurrency": 50},
    "delivery": {"leaseDurationSeconds": 2, "maxCrashes": 1000},
    "durability": {"confirm": "Replicated"},
}


@dataclass
class Move:
    """A queue whose tasks move from two shards to three."""

    fleet: Fleet
    servers: Cluster
    client: SyncClient
    soon: Producer
    far: Producer

    def shard_map(self) -> ShardMap | None:
        keys = Keys("delayq", self.fleet.queue, 0)
        try:
            found = self.servers.on(keys).get(keys.shard_map)
        except (RedisError, StopIteration):
            return None  # no server is primary just now
        return ShardMap.parse(cast("bytes", found).decode()) if found else None

    def begin(self) -> None:
        """As the owner of the document does: it has another number, and a scanner is started that has read it."""
        self.fleet.change({"uid": "u", "generation": 2}, shards=AFTER)
        self.fleet.start("scanner", ready=False)

        def moving() -> bool:
            found = self.shard_map()
            return found is not None and found.moves and any(map(self._moved, range(AFTER)))

        until(moving, "tasks move")

    def _moved(self, shard: int) -> int:
        keys = Keys("delayq", self.fleet.queue, shard)
        server = self.servers.on(keys)
        return int(server.zcard(keys.moving)) + int(server.hget(keys.stats, "moved") or 0)

    def check(self) -> None:
        """Every confirmed task has run once it was due, or waits at its home."""

        def settled() -> bool:
            found = self.shard_map()
            return found is not None and found.settled and found.shards == AFTER

        print(f"settled after {until(settled, f'settled with {AFTER}', timeout_s=120):.1f} s")
        stored = len(self.far.confirmed)
        until(lambda: len(self.far.confirmed) >= stored + 50, "tasks are stored by the new shard map")
        for producer in (self.soon, self.far):
            producer.end()
        until(lambda: self.fleet.starts().keys() >= self.soon.confirmed.keys(), "all ran")
        check_runs(self.fleet.starts())
        homes = ShardMap.first(AFTER)
        for shard in range(AFTER):
            keys = Keys("delayq", self.fleet.queue, shard)
            held = cast("list[bytes]", self.servers.on(keys).hkeys(keys.tasks))
            assert {homes.home(raw.decode()) for raw in held} <= {shard}
        far = {*FIRST, *self.far.confirmed}
        kept = {row.id for row in self.client.list(State.SCHEDULED, limit=len(far) * 3)}
        assert far - kept == set(), "lost"
        assert len(self.soon.confirmed) > 50


def test_a_primary_is_killed_while_tasks_move(new_fleet: NewFleet, cluster: Cluster) -> None:
    fleet = new_fleet(SPEC, server=cast("RedisServer", cluster))
    fleet.start_all("scanner", "worker")
    durability = Durability("Replicated", replicas=1, timeout_ms=2000)
    with (
        SyncClient(cluster.url, queue=fleet.queue, durability=durability) as client,
        SyncClient(cluster.url, queue=fleet.queue, durability=durability) as loading,
    ):
        client.schedule_many(NewTask(None, delay_ms=HOUR_MS, task_id=id_) for id_ in FIRST)
        move = Move(fleet, cluster, client, Producer("soon", loading), Producer("far", loading, HOUR_MS))
        with producing(move.soon, move.far):
            move.begin()
            old = cluster.serving(Keys("delayq", fleet.queue, 0).slot)
            replica = cluster.replica_of(old)
            old.kill()
            cluster.wait_promoted(replica)
            old.restart()
            move.check()

"""Shards come and go while processes run: a shard map is followed, and nothing is started anew."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq.connection import Address
from delayq.protocol.commands import Commands
from delayq.protocol.shard_map import UNSTAMPED, ShardMap
from delayq.reaper.reaper import Reaper
from delayq.resharding.coordinator import DesiredShards
from delayq.scanner.scanner import Scanner
from delayq.worker.worker import Worker

from tests.redis.recovering import until
from tests.redis.state import NOW, State, seed
from tests.redis.working import Handler
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.processes.runtime import Process

    from tests.redis.state import Shard

QUEUE = document(
    {"python": {"callable": "unused:unused"}},
    shards=2,
    worker={"concurrency": 4},
    delivery={"maxBlockMilliseconds": 60_000},
)
MORE, FEWER = ShardMap(NOW + 10, 2, 2, 4, 4), ShardMap(NOW + 20, 2, 2, 2, 4)  # later than any clock says


@asynccontextmanager
async def running(*processes: Process) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(each.run(stop, asyncio.Event())) for each in processes]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def due(shard: Shard, commands: Commands, number: int, task_id: str) -> None:
    """A task of a shard falls due, and a worker is woken."""
    keys = commands.keys(number)
    on = shard.server.on(keys)
    seed(on, keys, State(delayed={task_id: NOW}))
    on.lpush(keys.wake, "1")


def groups_of(process: Process) -> set[int | None]:
    """The shard groups that a process looks after: shards of a Cluster, or None for the one that there is elsewhere."""
    return {loop.group.only for loop in process.loops if loop.group is not None}


def expected(shard: Shard, shards: int) -> set[int | None]:
    return set(range(shards)) if Address.from_url(shard.server.url).is_cluster else {None}


@pytest.mark.every_topology
async def test_shards_that_come_are_looked_after_at_once_and_leases_of_those_that_go_are_settled(
    shard: Shard,
) -> None:
    """Within seconds, and not when a worker looks for itself, which it does after a minute."""
    address, handler = Address.from_url(shard.server.url), Handler()
    brokers = [Commands(shard.commands.queue, shards=2) for _ in range(3)]  # a process has one of its own
    commands, others, third = brokers
    wish = DesiredShards(2, UNSTAMPED)  # a document that has asked does not ask back
    worker = Worker(QUEUE.spec, commands, address, handler.handle)
    scanner = Scanner(QUEUE.spec, others, address, owner="me", wish=wish)
    reaper = Reaper(QUEUE.spec, third, address)

    def led() -> set[int]:
        return {each.shard for each in scanner.shards if each.leads}

    async with running(worker, scanner, reaper):
        await until(lambda: wish.asked and led() == {0, 1})
        for each in brokers:
            each.use_shard_map(MORE)
        await until(lambda: led() == {0, 1, 2, 3})
        for number, task_id in enumerate(("t0", "t1", "t2", "slow")):
            due(shard, commands, number, task_id)
            await until(lambda task_id=task_id: task_id in handler.began)  # type: ignore[misc]
        assert groups_of(worker) == groups_of(scanner) == groups_of(reaper) == expected(shard, 4)
        for each in brokers:
            each.use_shard_map(FEWER)
        await until(lambda: {each.shard for each in scanner.shards} == {0, 1})
        keys = commands.keys(3)
        on = shard.server.on(keys)
        assert on.zcard(keys.processing) == 1
        handler.may_end.set()
        await until(lambda: on.hget(keys.stats, "acked") == b"1")
        assert on.zcard(keys.processing) == 0
        await until(lambda: groups_of(worker) == groups_of(scanner) == expected(shard, 2))
        due(shard, commands, 0, "next")
        await until(lambda: "next" in handler.began)

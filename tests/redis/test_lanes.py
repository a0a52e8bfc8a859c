"""Two lanes on two servers, one of which hangs: the slots are the other's, and what comes late is handed back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.broker import Broker
from delayq.connection import Address, AsyncConnection
from delayq.exchange import Exchange
from delayq.inflight import Desk, Slots
from delayq.keys import shard_of
from delayq.lanes import Lane
from delayq.loop import Loop
from delayq.running import Runner
from delayq.tally import WorkerTally

from tests.redis.recovering import until
from tests.servers import PREFERRED, RedisServer
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from delayq.message import Task

SLOTS = 2
QUEUE = document(
    {"python": {"callable": "unused:unused"}},
    worker={"concurrency": SLOTS},
    delivery={"maxBlockMilliseconds": 100},
)
IDS = [[id_ for id_ in map(str, range(200)) if shard_of(id_, 2) == shard] for shard in range(2)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Each for one of two shards."""
    found = [RedisServer.start(PREFERRED, dir=tmp_path / f"{shard}") for shard in range(2)]
    try:
        yield found
    finally:
        for server in found:
            server.resume()
            server.stop()


def schedule(server: RedisServer, ids: list[str]) -> None:
    """Store due tasks on a server; all of them are of one shard."""
    with SyncClient(server.url, queue="orders", shards=2) as client:
        for id_ in ids:
            client.schedule(None, delay_ms=0, task_id=id_)


class Handler:
    """Writes down what it begins, and ends when it may."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.may_end = asyncio.Event()

    async def handle(self, task: Task) -> None:
        self.began.append(task.id)
        await self.may_end.wait()


@asynccontextmanager
async def working(servers: list[RedisServer], handler: Handler) -> AsyncIterator[Slots]:
    """A worker's exchanges, that would wait for a server for a minute."""
    broker = Broker("orders", shards=2)
    tally = WorkerTally("worker", "orders")
    slots = Slots(QUEUE.spec, tally)
    runner = Runner(handler.handle, QUEUE.spec.delivery, tally)
    addresses = [replace(Address.from_url(server.url), timeout_seconds=60.0) for server in servers]
    connections = [AsyncConnection(address) for address in addresses]
    loops = [
        Loop(Exchange(Desk(slots, Lane(broker, shard)), broker, connection, runner), tally)
        for shard, connection in enumerate(connections)
    ]
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    try:
        yield slots
    finally:
        handler.may_end.set()
        for loop, task in zip(loops, tasks, strict=True):
            loop.stop()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in connections))


async def test_a_server_that_hangs_keeps_no_slot_from_the_other(servers: list[RedisServer]) -> None:
    ids = IDS[1][:50]
    schedule(servers[1], ids)
    servers[0].pause()
    handler = Handler()
    handler.may_end.set()
    async with working(servers, handler) as slots:
        await until(lambda: slots.tally.settled["acked"] == len(ids))
        assert slots.exchanging  # and for a minute still
    assert sorted(handler.began) == sorted(ids)


async def test_what_a_server_brings_when_others_have_the_slots_is_handed_back(
    servers: list[RedisServer],
) -> None:
    """With no attempt charged; it runs when there is room."""
    late, quick = IDS[0][:SLOTS], IDS[1][:SLOTS]
    schedule(servers[0], late)
    schedule(servers[1], quick)
    servers[0].pause()
    handler = Handler()
    async with working(servers, handler) as slots:
        await until(lambda: len(handler.began) == SLOTS)
        servers[0].resume()
        await until(lambda: slots.tally.settled["released"] == 1)  # its half of the slots
        assert handler.began == quick
        assert len(slots.running) == SLOTS
        handler.may_end.set()
        await until(lambda: slots.tally.settled["acked"] == 2 * SLOTS)
    assert sorted(handler.began[SLOTS:]) == sorted(late)
    with servers[0].client() as redis:
        stats = redis.hgetall(Broker("orders").keys(0).stats)
    assert (stats["claimed"], stats["released"], stats["acked"]) == (str(SLOTS + 1), "1", str(SLOTS))


async def test_no_lane_waits_longer_for_a_slot_than_the_others(servers: list[RedisServer]) -> None:
    """Both have more than enough to do; by the end of the one, the other has done about as much."""
    count = 60
    for shard, server in enumerate(servers):
        schedule(server, IDS[shard][:count])
    handler = Handler()
    handler.may_end.set()
    async with working(servers, handler) as slots:
        await until(lambda: slots.tally.settled["acked"] == 2 * count)
    first = handler.began[:count]
    each = [sum(id_ in ids for id_ in first) for ids in IDS]
    print(each)
    assert min(each) > count // 4

"""Calls of Client.schedule that arrive during a round trip share the next one, and each has its own result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq import Client, InvalidTask, TaskExists, Unavailable
from delayq.protocol.results import Outcome

if TYPE_CHECKING:
    from tests.servers import RedisServer

pytestmark = pytest.mark.one_server
HOUR_MS = 3_600_000


def _calls(server: RedisServer) -> int:
    with server.client() as redis:
        return int(redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_calls_during_a_round_trip_share_the_next_one(redis_server: RedisServer) -> None:
    """1,000 concurrent calls take the first round trip, and two of at most 500 tasks."""
    async with Client(redis_server.url, queue="orders") as client:
        await client.schedule(0, delay_ms=HOUR_MS, task_id="first")
        before = _calls(redis_server)
        done = await asyncio.gather(
            *(client.schedule(n, delay_ms=HOUR_MS, task_id=f"task-{n}") for n in range(1000))
        )
        assert _calls(redis_server) - before == 3
        assert [each.id for each in done] == [f"task-{n}" for n in range(1000)]
        assert (await client.counts()).scheduled == 1001


async def test_each_call_of_a_shared_round_trip_has_its_own_result(redis_server: RedisServer) -> None:
    """Malformed and existing tasks fail alone; calls with another `if_exists` have their own round trip."""
    async with Client(redis_server.url, queue="orders") as client:
        await client.schedule("old", delay_ms=HOUR_MS, task_id="b")
        found = await asyncio.gather(
            client.schedule("new", delay_ms=HOUR_MS, task_id="a"),
            client.schedule("new", delay_ms=HOUR_MS, task_id="b"),
            client.schedule("new", delay_ms=HOUR_MS, task_id="c d"),
            client.schedule("new", delay_ms=HOUR_MS, task_id="e"),
            client.schedule("twice", delay_ms=HOUR_MS, task_id="e"),
            client.schedule("new", delay_ms=HOUR_MS, task_id="b", if_exists="replace"),
            return_exceptions=True,
        )
        assert [getattr(each, "outcome", type(each)) for each in found] == [
            *(Outcome.CREATED, TaskExists, InvalidTask, Outcome.CREATED, TaskExists, Outcome.REPLACED)
        ]
        assert (await client.counts()).scheduled == 3


async def test_a_cancelled_call_does_not_affect_the_others(redis_server: RedisServer) -> None:
    """Neither the call that is under way, nor one that waits for it; the latter is not sent at all."""
    async with Client(redis_server.url, queue="orders") as client:
        await client.counts()
        calls = [
            asyncio.create_task(client.schedule(n, delay_ms=HOUR_MS, task_id=f"task-{n}")) for n in range(5)
        ]
        await asyncio.sleep(0)
        calls[0].cancel()
        calls[2].cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        cancelled = [isinstance(each, asyncio.CancelledError) for each in found]
        assert cancelled == [True, False, True, False, False]
        assert await client.get("task-2") is None
        assert all([await client.get(f"task-{n}") for n in (1, 3, 4)])


async def test_calls_that_wait_fail_when_the_client_closes(aof_server: RedisServer) -> None:
    client = await Client(aof_server.url, queue="orders").open()
    await client.counts()
    aof_server.pause()
    calls = [asyncio.create_task(client.schedule(n, delay_ms=HOUR_MS)) for n in range(5)]
    await asyncio.sleep(0)
    await client.close()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in found} == {Unavailable}
    aof_server.resume()

"""Calls of Client.schedule that arrive during a round trip share the next one, and each has its own result."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from delayq import Client, DelayQError, Durability, InvalidTask, PayloadTooLarge, TaskExists, Unavailable
from delayq.client import enqueue
from delayq.contract import Limits
from delayq.protocol.results import Cancelled, Outcome

if TYPE_CHECKING:
    from tests.servers import RedisServer

pytestmark = pytest.mark.one_server
HOUR_MS = 3_600_000


def _calls(server: RedisServer) -> int:
    with server.client() as redis:
        return int(redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def _migrate(client: Client, server: RedisServer, *ids: str) -> None:
    """Store tasks whose migration does not end."""
    for each in ids:
        await client.schedule(0, delay_ms=HOUR_MS, task_id=each)
    with server.client() as redis:
        redis.zadd(client.commands.keys(0).moving, dict.fromkeys(ids, 5))


async def test_calls_during_a_round_trip_share_the_next_one(redis_server: RedisServer) -> None:
    """1,000 concurrent calls: the first, 31 round trips of 32 without waiting for an answer, and the seven left."""
    async with Client(redis_server.url, queue="orders") as client:
        await client.schedule(0, delay_ms=HOUR_MS, task_id="first")
        before = _calls(redis_server)
        done = await asyncio.gather(
            *(client.schedule(n, delay_ms=HOUR_MS, task_id=f"task-{n}") for n in range(1000))
        )
        assert _calls(redis_server) - before == 1 + 31 + 1
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
    assert all("connection closed" in str(each) for each in found)
    aof_server.resume()


async def test_a_task_that_cannot_be_stored_neither_fails_nor_delays_its_batch(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration of `m` never ends. It is in one batch with `x` and `y`, and sent before `later`."""
    monkeypatch.setattr(enqueue, "AGAIN_SECONDS", 0.1)
    async with Client(redis_server.url, queue="orders") as client:
        await _migrate(client, redis_server, "m")
        lead, m, x, y = (
            asyncio.create_task(client.schedule(1, delay_ms=HOUR_MS, task_id=each))
            for each in ("lead", *"mxy")
        )
        await lead
        later = asyncio.create_task(client.schedule(1, delay_ms=HOUR_MS, task_id="later"))
        assert [each.outcome for each in await asyncio.gather(x, y, later)] == [Outcome.CREATED] * 3
        assert not m.done()
        with pytest.raises(DelayQError, match="task m is still migrating"):
            await m


async def test_an_error_of_a_batch_fails_only_the_tasks_without_a_result(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes while the answers of the batch's round trip are processed. Each call has its own copy of it."""

    def fail(*_: object) -> None:
        raise Unavailable("here", "a test")

    async with Client(redis_server.url, queue="orders") as client:
        await client.schedule(0, delay_ms=HOUR_MS, task_id="y")
        await _migrate(client, redis_server, "m", "n")
        monkeypatch.setattr(client._operations.writer._placement, "again", fail)
        found = await asyncio.gather(
            *(client.schedule(1, delay_ms=HOUR_MS, task_id=each) for each in ("lead", *"mxyn")),
            return_exceptions=True,
        )
        assert [getattr(each, "outcome", type(each)) for each in found] == [
            *(Outcome.CREATED, Unavailable, Outcome.CREATED, TaskExists, Unavailable)
        ]
        m, n = found[1], found[4]
        assert isinstance(m, Unavailable)
        assert isinstance(n, Unavailable)
        assert m is not n
        assert (str(m), m.where, m.__cause__) == ("cannot reach Redis at here (a test)", "here", n.__cause__)


@pytest.mark.parametrize("known", [False, True])
async def test_in_an_outage_a_call_does_not_wait_for_the_tries_of_another(
    redis_server: RedisServer,
    known: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """With and without a known shard map."""
    async with Client(redis_server.url, queue="orders") as client:
        if known:
            await client.counts()
            await client.schedule(0, delay_ms=HOUR_MS, task_id="first")
        redis_server.kill()
        try:
            started = time.monotonic()
            calls = [
                asyncio.create_task(client.schedule(n, delay_ms=HOUR_MS, task_id=f"task-{n}"))
                for n in range(5)
            ]
            with pytest.raises(Unavailable):
                await calls[0]
            alone = time.monotonic() - started
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in found} == {Unavailable}
            assert len({id(each) for each in found}) == len(found)
            assert time.monotonic() - started < 1.9 * alone, "and not one after the other"
        finally:
            redis_server.restart()


async def test_with_durability_a_call_waits_for_no_other(redis_server: RedisServer) -> None:
    """No replica will confirm, so each round trip takes the whole timeout."""
    durability = Durability("Replicated", timeout_ms=400)
    async with Client(redis_server.url, queue="orders", durability=durability) as client:
        await asyncio.gather(client.schedule(0, delay_ms=HOUR_MS), return_exceptions=True)
        started = time.monotonic()
        await asyncio.gather(
            *(client.schedule(n, delay_ms=HOUR_MS) for n in range(5)), return_exceptions=True
        )
        assert 0.3 < time.monotonic() - started < 1.6, "five would take 2 s"


async def test_calls_keep_their_order_if_each_is_awaited(redis_server: RedisServer) -> None:
    """Also while other calls share round trips. Concurrent calls about one ID have no order."""
    async with Client(redis_server.url, queue="orders") as client:
        others = [asyncio.create_task(client.schedule(n, delay_ms=HOUR_MS)) for n in range(1000)]
        await asyncio.sleep(0)
        for n in range(5):
            await client.schedule(n, delay_ms=HOUR_MS, task_id="o", if_exists="replace")
            kept = await client.schedule("kept", delay_ms=HOUR_MS, task_id="o", if_exists="keep")
            assert kept.outcome is Outcome.KEPT
            task = await client.get("o")
            assert task is not None
            assert task.body == str(n).encode()
            assert await client.cancel("o") is Cancelled.CANCELLED
        await asyncio.gather(*others)
        assert (await client.counts()).scheduled == 1000


@pytest.mark.parametrize(
    ("payload", "content_type"), [({"a": 1}, "application/json"), (b"a", "application/octet-stream")]
)
async def test_a_content_type_that_takes_no_space_in_the_envelope_does_not_count_as_a_header(
    redis_server: RedisServer, payload: object, content_type: str
) -> None:
    """An App passes application/json with each task."""
    limits = Limits(max_header_bytes=0)
    async with Client(redis_server.url, queue="orders", limits=limits) as client:
        await client.schedule(payload, delay_ms=HOUR_MS, content_type=content_type)
        with pytest.raises(PayloadTooLarge, match="headers of task"):
            await client.schedule(b"a", delay_ms=HOUR_MS, content_type="a/b")

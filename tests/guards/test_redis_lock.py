"""redis-lock: one run at a time, kept while it lasts, notified when the lock is lost."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq import guards
from delayq.connection import Address
from delayq.contract import parse
from delayq.errors import GuardBusy, GuardLost, GuardUnavailable
from delayq.guards import RedisLock
from delayq.guards.locking import GONE, MAX_BUSY_MS, TOO_LATE
from delayq.protocol.keys import Keys

from tests.guards.locks import interrupted, until
from tests.guards.sql_bank import task
from tests.processes import Process
from tests.redis.proxy import proxy_to
from tests.servers import Clock, RedisServer
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redis import Redis

    from tests.guards.conftest import Opened

KEY = Keys("delayq", "q", 0).of("order-7").lock


@pytest.fixture
def redis(aof_server: RedisServer) -> Iterator[Redis]:
    with aof_server.client() as client:
        yield client


@pytest.fixture
async def guard(aof_server: RedisServer) -> AsyncIterator[RedisLock]:
    guard = RedisLock(aof_server.url, queue="q", ttl_seconds=30)
    yield guard
    await guard.close()


@pytest.fixture
async def brief(aof_server: RedisServer) -> AsyncIterator[RedisLock]:
    """A guard whose locks run out within seconds, and are renewed every second."""
    guard = RedisLock(aof_server.url, queue="q", ttl_seconds=3)
    yield guard
    await guard.close()


def renewals(redis: Redis) -> int:
    return int(redis.info("commandstats").get("cmdstat_pexpire", {}).get("calls", 0))


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.getMessage() == event]  # type: ignore[attr-defined]


async def test_a_task_is_locked_while_it_runs_and_another_run_is_put_off(
    guard: RedisLock, redis: Redis
) -> None:
    """For about as long as the lock may last."""
    async with guard(task(token=41)) as hold:
        token, _, chance = str(redis.get(KEY)).partition(":")
        assert (token, len(chance)) == ("41", 16)
        assert 29_000 < redis.pttl(KEY) <= 30_000
        assert hold.connection is None
        with pytest.raises(GuardBusy) as busy:
            await guard.begin(task(token=2))
        assert busy.value.charge is False
        assert 0.8 * MAX_BUSY_MS <= (busy.value.delay_ms or 0) <= MAX_BUSY_MS
        assert redis.get(KEY) == hold.owner
    assert redis.get(KEY) is None
    assert await guard.seen(task()) is None  # a lock keeps no record


async def test_a_lock_is_kept_for_longer_than_it_lasts(
    aof_server: RedisServer, redis: Redis, opened: Opened
) -> None:
    """And nothing goes on once the task has ended."""
    guard, began = opened(RedisLock(aof_server.url, queue="q", ttl_seconds=3)), time.monotonic()
    await guard.check()
    before = len(asyncio.all_tasks())
    async with guard(task()) as hold:
        await until(lambda: renewals(redis) >= 4)
        assert time.monotonic() - began > 3
        assert redis.get(KEY) == hold.owner
    assert redis.get(KEY) is None
    await until(lambda: len(asyncio.all_tasks()) == before)


async def test_a_handler_whose_lock_is_gone_or_of_another_run_is_interrupted(
    brief: RedisLock, redis: Redis
) -> None:
    with pytest.raises(GuardLost, match=GONE) as lost:
        await interrupted(brief, lambda _: redis.delete(KEY))
    assert lost.value.charge is True
    with pytest.raises(GuardLost, match=GONE):
        await interrupted(brief, lambda _: redis.set(KEY, "another"))
    assert redis.get(KEY) == "another"


async def test_a_handler_is_interrupted_when_no_renewal_is_confirmed_for_as_long_as_a_lock_lasts(
    brief: RedisLock, aof_server: RedisServer
) -> None:
    """Redis is away, or the event loop is blocked: as after SIGSTOP, only when the process runs again can it know."""
    with pytest.raises(GuardLost, match=TOO_LATE):
        await interrupted(brief, lambda _: aof_server.pause())
    aof_server.resume()
    with pytest.raises(GuardLost, match=TOO_LATE):
        await interrupted(brief, lambda _: time.sleep(3.1))


async def test_an_outage_that_is_shorter_than_a_lock_interrupts_no_handler(
    aof_server: RedisServer, redis: Redis, caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    """Redis still has what it had written; the renewal is tried again until it is confirmed."""
    guard = opened(RedisLock(aof_server.url, queue="q", ttl_seconds=12))
    async with guard(task()):
        await asyncio.to_thread(aof_server.kill)
        aof_server.restart()
        await until(lambda: renewals(redis) >= 1)
    assert redis.get(KEY) is None
    assert logged(caplog, "guard_lost") == []


async def test_a_late_unlock_leaves_the_next_holder_alone_and_is_logged(
    guard: RedisLock, aof_server: RedisServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler has ended: a retry would run it again, for nothing."""
    late = await guard.begin(task())
    redis.pexpire(KEY, 1)
    await until(lambda: not redis.exists(KEY))
    next_guard = RedisLock(aof_server.url, queue="q")
    with caplog.at_level(logging.WARNING):
        async with next_guard(task()) as hold:
            await guard.finish(late)
            assert redis.get(KEY) == hold.owner
    assert [fields["task_id"] for fields in logged(caplog, "guard_lost")] == ["order-7"]
    await next_guard.close()


async def test_a_task_that_ended_is_done_though_its_lock_cannot_be_given_back(
    guard: RedisLock, aof_server: RedisServer
) -> None:
    async with guard(task()):
        aof_server.pause()
    aof_server.resume()


@pytest.mark.parametrize("lost", [False, True])
async def test_a_cancellation_from_outside_stays_one_and_frees_the_task(
    guard: RedisLock, redis: Redis, *, lost: bool
) -> None:
    """Though the lock is lost, too."""
    running: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    handler = asyncio.create_task(interrupted(guard, running.set_result))
    hold = await running
    if lost:
        hold.lose("for a test")
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert redis.get(KEY) is None


async def test_a_run_that_is_cancelled_while_it_acquires_leaves_no_lock_behind(
    guard: RedisLock, aof_server: RedisServer, redis: Redis
) -> None:
    await guard.check()
    asked = redis.info("commandstats")["cmdstat_set"]["calls"]
    aof_server.pause()
    asking = asyncio.create_task(guard.begin(task()))
    for _ in range(20):  # turns of the event loop, for the request to leave
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    aof_server.resume()
    await guard.close()
    assert redis.info("commandstats")["cmdstat_set"]["calls"] == asked + 1
    assert redis.get(KEY) is None


async def test_a_lock_whose_confirmation_was_lost_is_given_back(
    aof_server: RedisServer, redis: Redis
) -> None:
    with proxy_to(aof_server.port) as proxy:
        guard = RedisLock(proxy.url, queue="q")
        await guard.check()
        proxy.drop = 1
        with pytest.raises(GuardUnavailable):
            await guard.begin(task())
        await guard.close()
    assert proxy.dropped == 1
    assert redis.get(KEY) is None


async def test_a_guard_whose_redis_is_away_or_read_only_is_unavailable_until_it_is_back(
    guard: RedisLock, aof_server: RedisServer, redis: Redis
) -> None:
    """A replica answers a PING; a worker that believed it would claim tasks for nothing."""
    aof_server.stop()
    with pytest.raises(GuardUnavailable, match="not available") as away:
        await guard.begin(task())
    assert (away.value.where, away.value.charge) == (f"127.0.0.1:{aof_server.port}", False)
    with pytest.raises(GuardUnavailable):
        await guard.check()
    aof_server.restart()
    redis.replicaof("127.0.0.1", 1)
    for ask in (guard.check(), guard.begin(task())):
        with pytest.raises(GuardUnavailable, match="READONLY"):
            await ask
    redis.replicaof("NO", "ONE")
    await guard.check()
    async with guard(task()):
        pass
    assert redis.keys() == []


async def test_a_document_chooses_it_and_a_lock_lies_on_the_shard_that_its_task_was_claimed_from(
    aof_server: RedisServer, redis: Redis, opened: Opened
) -> None:
    """While it is locked, it is neither run nor migrated, in any shard of its ID."""
    redis_spec = {"standalone": {"host": "redis.test"}, "keyPrefix": "p"}
    queue = parse(document(redis=redis_spec, guard={"redisLock": {"ttlSeconds": 77}}))
    address = Address.from_url(aof_server.open_url)
    guard = guards.build(queue, address, secrets_dir=Path(), apart=True)
    assert isinstance(guard, RedisLock)
    opened(guard)
    first, second = task("a"), task("b")
    first.shard, second.shard = 3, 250
    async with guard(first), guard(second):
        assert set(redis.keys()) == {"p:{orders:3}:lock:a", "p:{orders:250}:lock:b"}
        assert 76_000 < redis.pttl("p:{orders:3}:lock:a") <= 77_000
    assert redis.keys() == []


async def test_closing_ends_renewals_and_a_hold_may_outlive_its_guard(
    aof_server: RedisServer, redis: Redis
) -> None:
    guard = RedisLock(aof_server.url, queue="q", ttl_seconds=1)
    hold = await guard.begin(task())
    await guard.close()
    await until(lambda: not redis.exists(KEY))
    await guard.abandon(hold)


async def test_a_machines_clock_that_steps_ends_no_hold(aof_server: RedisServer, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock", aof_server.port)
    clock.write()
    holder = Process.start(
        sys.executable, "-m", "tests.guards.holder", aof_server.url, env=clock.environment()
    )
    try:
        for hours in (1, -1):
            clock.offset_ms = hours * 3_600_000
            clock.write()
            about = int(time.time() + hours * 3600) // 1000  # a run of the test takes no 1,000 s
            for _ in range(2):
                await holder.line(f"renewed at ({about}|{about + 1})", after=len(holder.lines))
        assert "lost" not in holder.output
    finally:
        holder.stop()


@pytest.mark.parametrize("ttl_seconds", [0.5, float("nan")])
def test_a_lock_that_lasts_no_time_is_refused(ttl_seconds: float) -> None:
    with pytest.raises(ValueError, match="ttl_seconds: expected 1 or more, got"):
        RedisLock("redis://localhost", queue="q", ttl_seconds=ttl_seconds)

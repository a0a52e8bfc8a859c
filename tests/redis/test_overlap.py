"""Two exchanges of a worker at the same time, over two connections."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.errors import Unavailable
from delayq.worker import exchange, suspects
from delayq.worker.exchange import ClaimConnection, Exchange
from delayq.worker.slots import OVERLAP_TASKS

from tests.redis.state import NOW, Shard, State
from tests.redis.working import Handler, Recorded, finish, loop_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.connection import AsyncConnection
    from delayq.protocol.envelope import Task
    from delayq.worker.claim_loop import ClaimLoop

    from tests.servers import RedisServer


REMOVED_SHARD = 7


def backlog(shard: Shard, count: int) -> None:
    shard.seed(State(delayed={f"t{nth}": NOW for nth in range(count)}))


def second_of(loop: ClaimLoop) -> Recorded:
    return cast("Recorded", loop._connections[1].connection)


@asynccontextmanager
async def one_under_way(loop: ClaimLoop) -> AsyncIterator[None]:
    """A step whose exchange gets its answer at the end of the block; tasks are due."""
    connection = cast("Recorded", loop._idle[0].connection)
    connection.asked.clear()
    connection.answering.clear()
    loop._group_state.hint(0)
    step = asyncio.create_task(loop.step())
    await connection.asked.wait()
    loop._deep = {0, REMOVED_SHARD}
    yield
    connection.answering.set()
    await step


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend overlaps for longer than the test takes."""
    monkeypatch.setattr(exchange, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(exchange, "LONGEST_PAUSE_SECONDS", 3600.0)


async def test_the_next_claim_of_a_backlog_is_sent_before_the_claimed_tasks_start(
    shard: Shard, redis_url: str
) -> None:
    backlog(shard, 200)
    left_at_start, most = list[int](), 0

    async def watched(_: Task) -> None:
        nonlocal most
        if not left_at_start:
            shard.whole()  # until it is answered, Redis has read what was sent before
            left_at_start.append(len(shard.whole().delayed))
        most = max(most, len(group_state.slots.running))

    async with loop_of(shard.commands, redis_url, slots=64, call=watched) as (
        loop,
        group_state,
        _,
    ):
        group_state.hint(0)
        await finish(loop, group_state)
    assert left_at_start == [200 - 2 * 32], "Redis had the second claim before the first task started"
    assert shard.whole().stats["acked"] == 200
    assert most <= 64, "no slot is used twice"


async def test_the_next_claim_leaves_slots_to_the_tasks_that_were_claimed_and_do_not_run_yet(
    shard: Shard, redis_url: str
) -> None:
    backlog(shard, 200)
    handler = Handler()
    async with loop_of(shard.commands, redis_url, slots=64, call=handler.handle) as (loop, group_state, _):
        group_state.slots.reserved = 16  # by another shard group
        group_state.hint(0)
        while len(group_state.running) < 48:
            await loop.step()
        assert len(group_state.running) == 48
        handler.may_end.set()
        group_state.slots.reserved = 0
        await finish(loop, group_state)
    assert "released" not in shard.whole().stats


async def test_an_exchange_does_not_wait_for_the_connection_of_another(shard: Shard, redis_url: str) -> None:
    async with loop_of(shard.commands, redis_url, overlapping=True) as (loop, _, _):
        held, answered = asyncio.Event(), asyncio.Event()
        for event in (held, answered):
            waiting = asyncio.ensure_future(event.wait())
            loop._exchanges.append(cast("Exchange", SimpleNamespace(answering=waiting)))
        first, second = loop._exchanges
        answered.set()
        async with asyncio.timeout(10):
            assert await loop._first_answered() is second
            held.set()
            await first.answering
            assert await loop._first_answered() is first
        loop._exchanges.clear()


@pytest.mark.parametrize(
    "why",
    [
        "",
        "the server is slow",
        "it drains",
        "suspects wait",
        "suspects run",
        "a claim was lost",
        "an error waits",
        "few slots",
        "no more is due",
    ],
)
async def test_exchanges_overlap_unless_there_is_a_reason_against_it(
    shard: Shard, redis_url: str, why: str
) -> None:
    """No slots are reserved for the claims of a slow server: a second claim would get the same ones."""
    async with loop_of(shard.commands, redis_url, slots=128, overlapping=True) as (loop, group_state, _):
        async with one_under_way(loop):
            slots, group_state.unresponsive = group_state.slots, why == "the server is slow"
            slots.draining = why == "it drains"
            if why == "suspects wait":
                slots.suspects.note(0, 1, 0.0)
            elif why == "suspects run":
                slots.suspects.begin()
            elif why == "no more is due":
                loop._deep.clear()
                group_state.hint(0)
            elif why == "few slots":
                slots.reserved += slots.free - OVERLAP_TASKS + 1
            elif why == "a claim was lost":
                group_state.claims[1].lost[0] = 1
            elif why == "an error waits":  # it is raised once no exchange is under way
                loop._kept.error = Unavailable("", "")
            loop._send_ahead()
            loop._kept.error = None
            under_way = len(loop._exchanges)
        await asyncio.gather(*(cast("Any", each.answering) for each in loop._exchanges))
        assert {shard for _, shard in second_of(loop).scripts} == (set() if why else {0})
    assert under_way == (1 if why else 2)


async def test_suspects_get_a_worker_while_a_backlog_lasts(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can stop claiming for them only while no exchange is under way."""
    monkeypatch.setattr(suspects, "IDLE_WORKER_SECONDS", 0.0)
    shard.seed(State(delayed={f"t{nth}": NOW for nth in range(1000)}, suspect={"crashed": 7}))
    async with loop_of(shard.commands, redis_url, slots=64, overlapping=True) as (
        loop,
        group_state,
        connection,
    ):
        group_state.hint(0)
        while ("isolate", 0) not in connection.scripts:
            await loop.step()
            await asyncio.sleep(0)
        assert shard.whole().delayed
        await finish(loop, group_state)


@pytest.mark.one_server
@pytest.mark.usefixtures("long_pause")
async def test_overlaps_are_suspended_while_the_connection_that_they_need_cannot_be_opened(
    shard: Shard, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """No step fails: the loop would pause after it, although the other connection works."""
    backlog(shard, 1000)
    with redis_server.client() as redis:
        async with loop_of(shard.commands, redis_server.url, slots=128, overlapping=True) as (
            loop,
            group_state,
            _,
        ):
            redis.config_set("maxclients", len(redis.client_list()))
            async with one_under_way(loop):
                loop._send_ahead()
                assert len(loop._exchanges) == 2
            await finish(loop, group_state)
            assert len(second_of(loop).trips) == loop._counters.redis_errors == 1
            loop._connections[1].retry_at = 0.0
            backlog(shard, 1000)
            async with one_under_way(loop):
                loop._send_ahead()
            await finish(loop, group_state)
            assert len(second_of(loop).trips) == loop._counters.redis_errors == 2
            assert shard.whole().stats["acked"] == 1000
            redis.config_set("maxclients", 10_000)
            loop._connections[1].retry_at = 0.0
            backlog(shard, 1000)
            async with one_under_way(loop):
                loop._send_ahead()
            await finish(loop, group_state)
            assert second_of(loop).connects == 1
    assert shard.whole().stats["acked"] == 1000
    [reported] = [vars(record)["fields"] for record in caplog.records if record.message == "overlap_stopped"]
    assert "max number of clients reached" in reported["error"]


@pytest.mark.usefixtures("long_pause")
async def test_a_connection_that_fails_does_not_delay_the_answer_of_the_other_which_then_serves_alone(
    shard: Shard, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    backlog(shard, 1000)
    async with loop_of(shard.commands, redis_url, slots=128, overlapping=True) as (loop, group_state, first):
        loop._connections[1].tickets.replied(NOW, time.monotonic())
        second = second_of(loop)
        second.answering.clear()
        async with one_under_way(loop):
            loop._send_ahead()
            await first.close()
        assert [each.over.connection for each in loop._exchanges] == [second], "the step did not fail"
        second.answering.set()
        with pytest.raises(Unavailable, match="closed"):
            await loop.step()
        assert group_state.running, "the tasks of the second exchange have not started"
        async with one_under_way(loop):
            loop._send_ahead()
        await finish(loop, group_state)
    assert shard.whole().stats["acked"] == 1000
    assert [record.message for record in caplog.records].count("overlap_stopped") == 1


async def test_each_suspension_of_overlaps_in_a_row_is_twice_as_long_up_to_a_minute(
    shard: Shard, connection: AsyncConnection
) -> None:
    over, pauses = ClaimConnection(connection), list[float]()
    for nth in range(8):
        assert over.suspend(100.0) == (nth == 0)
        pauses.append(over.retry_at - 100.0)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    await over.answers([shard.commands.wake(0)])
    assert over.suspend(100.0), "it has worked since"
    assert over.retry_at == 101.0

"""Two exchanges of a worker at the same time, over two connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.redis.state import NOW, Shard, State
from tests.redis.working import Recorded, finish, loop_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.protocol.envelope import Task
    from delayq.worker.claim_loop import ClaimLoop
    from delayq.worker.exchange import Exchange


def backlog(shard: Shard, count: int) -> None:
    shard.seed(State(delayed={f"t{nth}": NOW for nth in range(count)}))


@asynccontextmanager
async def one_under_way(loop: ClaimLoop) -> AsyncIterator[None]:
    """A step whose exchange gets its answer at the end of the block; tasks are due."""
    connection = cast("Recorded", loop._connections[0].connection)
    connection.asked.clear()
    connection.answering.clear()
    loop._group_state.hint(0)
    step = asyncio.create_task(loop.step())
    await connection.asked.wait()
    loop._deep = {0}
    yield
    connection.answering.set()
    await step


async def test_the_next_claim_of_a_backlog_is_sent_before_the_claimed_tasks_start(
    shard: Shard, redis_url: str
) -> None:
    backlog(shard, 200)
    claims_at_start, most = list[int](), 0

    async def watched(_: Task) -> None:
        nonlocal most
        claims_at_start.append(len(connection.scripts))
        most = max(most, len(group_state.slots.running))

    async with loop_of(shard.commands, redis_url, slots=64, call=watched) as (
        loop,
        group_state,
        connection,
    ):
        group_state.hint(0)
        await finish(loop, group_state)
    assert claims_at_start[0] == 2, "the first tasks started after the second claim was sent"
    assert len(claims_at_start) == shard.whole().stats["acked"] == 200
    assert most <= 64, "no slot is used twice"


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
    "why", ["", "the server is slow", "it drains", "suspects wait", "suspects run", "a claim was lost"]
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
            elif why == "a claim was lost":
                group_state.claims[1].lost[0] = 1
            loop._send_ahead()
            under_way = len(loop._exchanges)
        await asyncio.gather(*(cast("Any", each.answering) for each in loop._exchanges))
    assert under_way == (1 if why else 2)

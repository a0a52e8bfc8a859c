"""The claim loop on a real shard: tasks of a newer version, refused calls, and a worker without its guard."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.errors import Bury
from delayq.protocol.commands import Commands
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup
from delayq.worker import claim_backoff
from delayq.worker.claim_loop import ClaimLoop
from delayq.worker.executor import Executor
from delayq.worker.settlements import TOO_NEW_PAUSE_MS
from delayq.worker.slots import GroupState, Slots

from tests.redis.state import NOW, Shard, State
from tests.redis.test_deadlines import within
from tests.redis.test_reaper import spec
from tests.redis.working import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.handlers.base import HandlerCall
    from delayq.protocol.envelope import Task
    from delayq.worker.exchange import Exchange

    from tests.servers import RedisServer


async def handle(task: Task) -> None:
    if task.id == "fails":
        raise ValueError("no")
    if task.id == "dies":
        raise Bury("never")


async def ended(group_state: GroupState) -> None:
    """Wait until every handler has ended."""
    await asyncio.wait([running.handling for running in group_state.running.values() if running.handling])


@asynccontextmanager
async def loop_of(
    commands: Commands,
    url: str,
    only: int | None = None,
    *,
    slots: int = 0,
    call: HandlerCall = handle,
    overlapping: bool = False,
) -> AsyncIterator[tuple[ClaimLoop, GroupState, Recorded]]:
    counters, document = WorkerCounters("worker", "q"), spec()
    document = replace(
        document, worker=replace(document.worker, concurrency=slots or document.worker.concurrency)
    )
    connection, second = Recorded(url), Recorded(url)
    connections = [connection, second] if overlapping else [connection]
    group_state = GroupState(Slots(document, counters), ShardGroup(commands, only))
    exchange = ClaimLoop(group_state, commands, connections, Executor(call, document.delivery, counters))
    try:
        await exchange.step()  # the first claim of a shard brings no task, but Redis' time
        connection.trips.clear()
        yield exchange, group_state, connection
    finally:
        await asyncio.gather(connection.close(), second.close())


@pytest.mark.parametrize("waited_ms", [0, 60_000, 10**9])
async def test_a_task_that_only_a_newer_worker_can_read_is_neither_charged_nor_buried(
    shard: Shard, redis_url: str, waited_ms: int
) -> None:
    """However often older workers claim it; the longer it waits, the less often they do."""
    envelope = b"\x31{}" + (NOW - waited_ms).to_bytes(6, "big")
    before = shard.seed(State(retry={"new": NOW}, tasks={"new": envelope}, attempts={"new": "99 2 old"}))
    async with loop_of(shard.commands, redis_url) as (exchange, _, _):
        await exchange.step()
        await exchange.step()
    after = shard.whole()
    due_ms = NOW + min(max(TOO_NEW_PAUSE_MS[0], waited_ms), TOO_NEW_PAUSE_MS[1])
    told = {"new": f"99 2 @{due_ms} unreadable: envelope version 3, this delayq reads up to 2"}
    changed = {"alarm": after.alarm, "stats": after.stats}
    assert after == before.but(retry={"new": due_ms}, attempts=told, **changed)


async def test_a_worker_does_not_pause_after_suspects_that_only_missed_their_deadlines(
    shard: Shard, redis_url: str
) -> None:
    async with loop_of(shard.commands, redis_url) as (exchange, group_state, connection):
        ids = [f"{n:04}" for n in range(3 * group_state.slots.free)]
        late = within(5, NOW - 10)
        shard.seed(State(suspect=dict.fromkeys(ids, 7), tasks=dict.fromkeys(ids, late)))
        group_state.hint_all()
        while await exchange.step() == 0:
            pass
    assert connection.scripts.count(("isolate", 0)) == 3
    assert shard.whole().dlq == dict.fromkeys(ids, NOW)


async def test_hints_at_a_shard_that_refuses_cause_no_claim_before_it_is_tried_again(
    shard: Shard, redis_url: str
) -> None:
    """A claim that is refused half-way leaves a wake token: workers that follow it would never rest."""
    commands = Commands(shard.commands.queue, shards=2)
    shard.seed(State(delayed={"due": NOW}))
    shard.redis.set(shard.keys.processing, "not a zset")
    async with loop_of(commands, redis_url) as (exchange, group_state, connection):
        await exchange.step()
        assert sorted(connection.scripts) == [("claim", 0), ("claim", 1)]
        group_state.hint(0)
        assert await exchange.step() > 0
        assert len(connection.scripts) == 2, "it has claimed from the shard again"
        group_state.hint(1)
        await exchange.step()
        assert connection.scripts[2:] == [("claim", 1)]


async def test_without_its_guard_a_worker_probes_redis_and_a_probe_delays_no_drain(
    shard: Shard, redis_url: str
) -> None:
    async with loop_of(shard.commands, redis_url) as (exchange, group_state, connection):
        slots = group_state.slots
        slots.blocked = True
        connection.asked.clear()
        connection.answering.clear()
        probing = asyncio.create_task(exchange.step())
        await connection.asked.wait()
        slots.draining = True
        slots.check_empty()
        assert not slots.empty.is_set(), "a call is under way"
        connection.answering.set()
        await probing
        assert connection.scripts == [("wake", 0)]
        assert slots.empty.is_set()
        await exchange.step()
        assert connection.scripts == [("wake", 0)], "a worker that drains does not probe"


async def test_without_its_guard_a_removed_shard_group_can_be_closed(shard: Shard, redis_url: str) -> None:
    async with loop_of(shard.commands, redis_url, only=1) as (exchange, group_state, connection):
        group_state.slots.blocked = True
        await exchange.step()
        assert connection.scripts == []
        assert group_state.idle


async def test_each_dead_letter_is_logged_with_its_reason(
    shard: Shard, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures = spec().delivery.max_attempts - 1
    shard.seed(State(retry={"fails": NOW}, delayed={"dies": NOW}, attempts={"fails": f"{failures} 0 no"}))
    async with loop_of(shard.commands, redis_url) as (exchange, group_state, _):
        await exchange.step()
        await ended(group_state)
        await exchange.step()
    told = [vars(record)["fields"] for record in caplog.records if record.message == "buried"]
    assert sorted(told, key=lambda fields: fields["task_id"]) == [
        {"task_id": "dies", "attempt": 1, "reason": "buried"},
        {"task_id": "fails", "attempt": failures + 1, "reason": "attempts"},
    ]
    assert set(shard.whole().dlq) == {"dies", "fails"}


@pytest.mark.one_server
async def test_a_settlement_refused_beside_a_claim_is_sent_again(
    shard: Shard, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_backoff, "REFUSED_SECONDS", 0.0)
    shard.seed(State(delayed={"dies": NOW}))
    with redis_server.client() as redis:
        redis.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all")
        url = f"redis://worker:secret@127.0.0.1:{redis_server.port}"
        async with loop_of(shard.commands, url) as (exchange, group_state, connection):
            await exchange.step()
            await ended(group_state)
            # bury calls it before its first write, a claim of nothing does not
            redis.execute_command("ACL", "SETUSER", "worker", "-hlen")
            connection.trips.clear()
            group_state.hint(0)
            await exchange.step()
            assert connection.scripts == [("bury", 0), ("claim", 0)]
            assert len(group_state.outbox.refused) == 1
            redis.execute_command("ACL", "SETUSER", "worker", "+hlen")
            await exchange.step()
            assert group_state.outbox.unconfirmed == 0, "the settlement waits for its lease to expire"
        redis.execute_command("ACL", "DELUSER", "worker")
    assert set(shard.whole().dlq) == {"dies"}


def backlog(shard: Shard, count: int) -> None:
    ids = [f"t{nth}" for nth in range(count)]
    envelope = b"\x11{}" + NOW.to_bytes(6, "big")
    shard.seed(State(delayed=dict.fromkeys(ids, NOW), tasks=dict.fromkeys(ids, envelope)))


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
        exchange,
        group_state,
        connection,
    ):
        group_state.hint(0)
        while group_state.running or group_state.has_work or group_state.exchanging:
            await exchange.step()
    assert claims_at_start[0] == 2, "the first tasks started after the second claim was sent"
    assert len(claims_at_start) == shard.whole().stats["acked"] == 200
    assert most <= 64, "no slot is used twice"


async def test_an_exchange_does_not_wait_for_the_connection_of_another(shard: Shard, redis_url: str) -> None:
    async with loop_of(shard.commands, redis_url, overlapping=True) as (exchange, _, _):
        held, answered = asyncio.Event(), asyncio.Event()
        for event in (held, answered):
            waiting = asyncio.ensure_future(event.wait())
            exchange._exchanges.append(cast("Exchange", SimpleNamespace(answering=waiting)))
        first, second = exchange._exchanges
        answered.set()
        async with asyncio.timeout(10):
            assert await exchange._first_answered() is second
            held.set()
            await first.answering
            assert await exchange._first_answered() is first
        exchange._exchanges.clear()


@pytest.mark.parametrize(
    "why", ["", "the server is slow", "it drains", "suspects wait", "suspects run", "a claim was lost"]
)
async def test_exchanges_overlap_unless_there_is_a_reason_against_it(
    shard: Shard, redis_url: str, why: str
) -> None:
    """No slots are reserved for the claims of a slow server: a second claim would get the same ones."""
    async with loop_of(shard.commands, redis_url, slots=128, overlapping=True) as (
        loop,
        group_state,
        connection,
    ):
        connection.asked.clear()
        connection.answering.clear()
        group_state.hint(0)
        step = asyncio.create_task(loop.step())
        await connection.asked.wait()
        slots, loop._deep = group_state.slots, {0}
        slots.draining, group_state.unresponsive = why == "it drains", why == "the server is slow"
        if why == "suspects wait":
            slots.suspects.note(0, 1, 0.0)
        elif why == "suspects run":
            slots.suspects.begin()
        elif why == "a claim was lost":
            group_state.claims[1].lost[0] = 1
        loop._send_ahead()
        under_way = len(loop._exchanges)
        connection.answering.set()
        await asyncio.gather(step, *(cast("Any", each.answering) for each in loop._exchanges[1:]))
    assert under_way == (1 if why else 2)

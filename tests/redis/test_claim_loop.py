"""The claim loop on a real shard: tasks of a newer version, refused calls, and a worker without its guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import Bury, DelayQError
from delayq.protocol.commands import Commands
from delayq.protocol.results import Settled
from delayq.worker import claim_backoff
from delayq.worker.settlements import TOO_NEW_PAUSE_MS, Settlement

from tests.redis.state import NOW, Shard, State
from tests.redis.test_deadlines import within
from tests.redis.test_reaper import spec
from tests.redis.working import ended, finish, loop_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from delayq.protocol.envelope import Task

    from tests.servers import RedisServer


async def handle(task: Task) -> None:
    if task.id == "fails":
        raise ValueError("no")
    if task.id == "dies":
        raise Bury("never")


@pytest.mark.parametrize("waited_ms", [0, 60_000, 10**9])
async def test_a_task_that_only_a_newer_worker_can_read_is_neither_charged_nor_buried(
    shard: Shard, redis_url: str, waited_ms: int
) -> None:
    """However often older workers claim it; the longer it waits, the less often they do."""
    envelope = b"\x31{}" + (NOW - waited_ms).to_bytes(6, "big")
    before = shard.seed(State(retry={"new": NOW}, tasks={"new": envelope}, attempts={"new": "99 2 old"}))
    async with loop_of(shard.commands, redis_url, call=handle) as (exchange, _, _):
        await exchange.step()
        await exchange.step()
    after = shard.whole()
    due_ms = NOW + min(max(TOO_NEW_PAUSE_MS[0], waited_ms), TOO_NEW_PAUSE_MS[1])
    reported = {"new": f"99 2 @{due_ms} unreadable: envelope version 3, this delayq reads up to 2"}
    changed = {"alarm": after.alarm, "stats": after.stats}
    assert after == before.but(retry={"new": due_ms}, attempts=reported, **changed)


async def test_a_worker_does_not_pause_after_suspects_that_only_missed_their_deadlines(
    shard: Shard, redis_url: str
) -> None:
    async with loop_of(shard.commands, redis_url, call=handle) as (exchange, group_state, connection):
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


async def test_no_step_succeeds_while_all_shards_refuse_though_a_hint_has_come_before_the_refusal(
    shard: Shard, redis_url: str
) -> None:
    """Else /readyz would answer 200 once, and the log would report an outage as new."""
    shard.seed(State(delayed={"due": NOW}))
    shard.redis.set(shard.keys.processing, "not a zset")
    async with loop_of(shard.commands, redis_url) as (exchange, group_state, connection):
        group_state.hint(0)
        for claims in (1, 2):
            with pytest.raises(DelayQError, match="WRONGTYPE"):
                await exchange.step()
            assert connection.scripts == [("claim", 0)] * claims


async def test_without_its_guard_a_worker_probes_redis_and_a_probe_delays_no_drain(
    shard: Shard, redis_url: str
) -> None:
    async with loop_of(shard.commands, redis_url, call=handle) as (exchange, group_state, connection):
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
    async with loop_of(shard.commands, redis_url, call=handle) as (exchange, group_state, _):
        await exchange.step()
        await ended(group_state)
        await exchange.step()
    reported = [vars(record)["fields"] for record in caplog.records if record.message == "buried"]
    assert sorted(reported, key=lambda fields: fields["task_id"]) == [
        {"task_id": "dies", "attempt": 1, "reason": "buried"},
        {"task_id": "fails", "attempt": failures + 1, "reason": "attempts"},
    ]
    assert set(shard.whole().dlq) == {"dies", "fails"}


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, work: Coroutine[Any, Any, object]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, object]:
        return self._work.__await__()


async def test_what_a_handler_without_a_guard_returns_is_awaited_before_its_task_is_done(
    shard: Shard, redis_url: str
) -> None:
    """Without `await` in the handler, its work would not run, and its task would be done."""
    began = list[str]()

    async def work(task: Task) -> object:
        began.append(task.id)
        return work(task) if task.id == "again" else None

    async def handler(task: Task) -> object:
        return {"coroutine": work, "other": lambda task: Later(work(task)), "again": work}[task.id](task)

    ids = ("coroutine", "other", "again")
    shard.seed(State(delayed=dict.fromkeys(ids, NOW)))
    async with loop_of(shard.commands, redis_url, call=handler) as (loop, group_state, _):
        await finish(loop, group_state)
    assert sorted(began) == sorted(ids)
    after = shard.whole()
    assert after.stats["acked"] == 2
    assert "awaitable (coroutine) that has not run" in after.attempts["again"]


@pytest.mark.one_server
async def test_a_settlement_refused_beside_a_claim_is_sent_again(
    shard: Shard, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_backoff, "REFUSED_SECONDS", 0.0)
    shard.seed(State(delayed={"dies": NOW}))
    with redis_server.client() as redis:
        redis.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all")
        url = f"redis://worker:secret@127.0.0.1:{redis_server.port}"
        async with loop_of(shard.commands, url, call=handle) as (exchange, group_state, connection):
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


async def test_results_of_an_exchange_that_cannot_be_prepared_are_sent_with_the_next(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may lack memory for it."""
    shard.seed(State(delayed={"fails": NOW - 1, "runs": NOW - 1}))
    async with loop_of(shard.commands, redis_url, call=handle) as (exchange, group_state, _):
        group_state.hint_all()
        await exchange.step()
        await ended(group_state)
        with monkeypatch.context() as patched:
            patched.setattr(shard.commands, "ack", lacking)
            with pytest.raises(MemoryError):
                await exchange.step()
        while group_state.outbox.unconfirmed:
            await exchange.step()
    after = shard.whole()
    assert (after.processing, list(after.retry)) == ({}, ["fails"])


async def test_a_task_that_the_loop_and_its_stand_in_release_at_once_is_no_lost_lease(
    shard: Shard, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a lock both may do so: see backup_renewal.py."""
    shard.seed(State(delayed={"waits": NOW - 1}))
    async with loop_of(shard.commands, redis_url, call=never) as (exchange, group_state, _):
        group_state.hint_all()
        await exchange.step()
        [running] = group_state.running.values()
        assert running.handling is not None
        running.handling.cancel()
        await asyncio.wait([running.handling])
        running.handed_back = True
        released = (running.lease.member, running.lease.task.due_ms)
        shard.run(shard.commands.release(0, released))
        group_state.outbox.waiting = [Settlement("release", running.lease, released[1:], running=running)]
        await exchange.step()
        counters = group_state.slots.counters
    assert "lease_lost" not in caplog.messages
    assert not counters.settled[Settled.LEASE_LOST]


async def never(_: Task) -> None:
    await asyncio.Event().wait()


def lacking(*_: object) -> None:
    raise MemoryError

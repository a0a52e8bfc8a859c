"""A worker whose Redis hangs, or whose reply is lost: it gets its tasks back at once, and no attempt is charged."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from delayq import NewTask, SyncClient
from delayq.protocol.keys import Keys

from tests.redis.proxy import proxy_to
from tests.redis.recovering import until
from tests.redis.working import LONGEST_LOOK_MS, Handler, own_servers, queue, working
from tests.unit.worker.support import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer


KEYS = Keys("delayq", "orders", 0)
SLOTS, TASKS = 20, 300
OVERLAPPING, BACKLOG, LOST_REPLIES = 128, 6000, 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with own_servers(tmp_path, 1) as [server]:
        yield server


def schedule(server: RedisServer, ids: list[str], delay_ms: int = 0) -> None:
    with SyncClient(server.url, queue="orders") as client:
        client.schedule_many([NewTask(None, delay_ms=delay_ms, task_id=id_) for id_ in ids])


def stats(server: RedisServer) -> dict[str, int]:
    with server.client() as redis:
        return {name: int(count) for name, count in redis.hgetall(KEYS.stats).items()}


@pytest.mark.one_server
async def test_tasks_that_fall_due_while_redis_hangs_run_once_and_as_their_first_attempt(
    server: RedisServer,
) -> None:
    """Three times: with a crash charged each time, tasks would be dead by then. Leases outlast the test."""
    handler = Handler()
    handler.may_end.set()
    async with working([server.url], handler, queue(SLOTS), timeout_seconds=1.0) as slots:
        await until(lambda: not slots.exchanging and not slots.hinted)
        for hang in range(1, 4):
            failures = slots.counters.redis_errors
            schedule(server, [f"{hang}-{n}" for n in range(TASKS)], delay_ms=500)
            server.pause()
            await until(lambda failures=failures: slots.counters.redis_errors >= failures + 2)  # type: ignore[misc]
            server.resume()
            await until(lambda hang=hang: slots.counters.settled["acked"] == hang * TASKS)  # type: ignore[misc]
    assert len(handler.began) == 3 * TASKS
    assert handler.attempts == {1}
    assert stats(server)["acked"] == 3 * TASKS
    assert "reclaimed" not in stats(server)


@pytest.mark.one_server
async def test_tasks_of_a_claim_whose_reply_was_lost_are_claimed_again_at_once(server: RedisServer) -> None:
    handler = Handler()
    handler.may_end.set()
    with proxy_to(server.port) as proxy:
        async with working([proxy.url], handler, queue(SLOTS, look_ms=LONGEST_LOOK_MS)) as slots:
            await until(lambda: not slots.exchanging and not slots.hinted)
            schedule(server, ["a", "b"])
            proxy.drop = 1
            slots.group_states[0].hint(0)
            await until(lambda: slots.counters.settled["acked"] == 2)
    assert (sorted(handler.began), handler.attempts) == (["a", "b"], {1})
    assert (stats(server)["claimed"], stats(server)["released"]) == (4, 2)


@pytest.mark.one_server
async def test_no_task_is_lost_or_runs_twice_when_replies_of_overlapping_exchanges_are_lost(
    server: RedisServer,
) -> None:
    """The worker sends a second exchange over a connection of its own; either reply may be lost, or both."""
    handler, more = Handler(), BACKLOG // LOST_REPLIES
    handler.may_end.set()
    ids = [str(n) for n in range(BACKLOG)]
    with proxy_to(server.port) as proxy:
        async with working([proxy.url], handler, queue(OVERLAPPING, look_ms=LONGEST_LOOK_MS)) as slots:
            await until(lambda: not slots.exchanging and not slots.hinted)
            schedule(server, ids)
            slots.group_states[0].hint(0)
            for nth, began in enumerate(range(more // 2, BACKLOG, more)):
                await until(lambda began=began: len(handler.began) > began)  # type: ignore[misc]
                proxy.drop = 1 + nth % 2
            await until(
                lambda: slots.counters.settled["acked"] + slots.counters.settled["lease_lost"] == BACKLOG
            )
            with server.client() as redis:
                assert len(redis.keys(KEYS.claimed_by("*").claim)) == 2, "only one exchange was under way"
    assert (sorted(handler.began), handler.attempts) == (sorted(ids), {1})
    assert proxy.dropped >= LOST_REPLIES // 2
    counts = stats(server)
    assert (counts["acked"], counts["claimed"]) == (BACKLOG, BACKLOG + counts.get("released", 0))
    assert "reclaimed" not in counts


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("place", "after"),
    [
        ("delayq.connection.round_trip._decoded", 3),
        ("delayq.protocol.replies._leases", 3),
        ("delayq.worker.task_starter.Running", 35),
        ("delayq.worker.task_starter.TaskStarter._run", 35),
        ("delayq.worker.claim_loop.ClaimLoop._note", 3),
        ("delayq.worker.claim_loop.ClaimLoop._settled", 3),
        ("delayq.worker.slots.Reservation", 3),
    ],
)
async def test_a_lack_of_memory_at_any_place_loses_no_lease_and_no_result_of_a_backlog(
    server: RedisServer, place: str, after: int
) -> None:
    """Leases outlast the test. Which allocation fails cannot be chosen with a real limit, so the test injects it."""
    handler = Handler()
    handler.may_end.set()
    schedule(server, [str(n) for n in range(TASKS)])
    with patch(place, lacking(resolve_name(place), after)):
        async with working([server.url], handler, queue(SLOTS, look_ms=LONGEST_LOOK_MS)) as slots:
            await until(lambda: stats(server).get("acked") == TASKS)
            await until(lambda: not slots.settling)
            assert not slots.running
            assert sum(slots.counters.loop_errors.values()) == 1
    assert sorted(handler.began) == sorted(str(n) for n in range(TASKS))
    assert handler.attempts == {1}
    assert "reclaimed" not in stats(server)


@pytest.mark.one_server
async def test_a_worker_that_can_start_no_task_for_want_of_memory_pauses_and_says_so(
    server: RedisServer,
) -> None:
    handler = Handler()
    schedule(server, [str(n) for n in range(TASKS)])
    with patch("delayq.worker.task_starter.Running", side_effect=MemoryError):
        async with working([server.url], handler, queue(SLOTS, look_ms=LONGEST_LOOK_MS)) as slots:
            await until(lambda: sum(slots.counters.loop_errors.values()) == 5)
            assert slots.counters.claimed <= 5 * SLOTS
    assert handler.began == []

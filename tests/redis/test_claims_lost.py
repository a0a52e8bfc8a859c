"""A worker whose Redis hangs, or whose reply is lost: it gets its tasks back at once, and no attempt is charged."""

from __future__ import annotations

from itertools import count
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from delayq import NewTask, SyncClient
from delayq.protocol.keys import Keys

from tests.redis.proxy import proxy_to
from tests.redis.recovering import until
from tests.redis.working import LONGEST_LOOK_MS, Handler, own_servers, queue, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


def lacking(call: Callable[..., Any], after: int) -> Callable[..., Any]:
    """Return what fails once, as code does for which no memory is left, after so many calls."""
    calls = count()

    def failing(*args: Any, **named: Any) -> Any:  # noqa: ANN401  as the call
        if next(calls) == after:
            raise MemoryError
        return call(*args, **named)

    return failing


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("place", "after", "returned"),
    [
        ("delayq.connection.round_trip._decoded", 0, SLOTS),
        ("delayq.protocol.results.Claimed.decoded", 0, SLOTS),
        ("delayq.worker.task_starter.Running", SLOTS // 2, SLOTS // 2),
        ("delayq.worker.task_starter.TaskStarter._run", SLOTS // 2, SLOTS // 2),
    ],
)
async def test_tasks_that_did_not_begin_for_want_of_memory_are_claimed_again_at_once(
    server: RedisServer, place: str, after: int, returned: int
) -> None:
    """Leases outlast the test. Which allocation fails cannot be chosen with a real limit, so the test injects it."""
    handler = Handler()
    handler.may_end.set()
    async with working([server.url], handler, queue(SLOTS, look_ms=LONGEST_LOOK_MS)) as slots:
        await until(lambda: not slots.exchanging and not slots.hinted)
        schedule(server, [str(n) for n in range(SLOTS)])
        owner, _, name = place.rpartition(".")
        with patch(place, lacking(getattr(resolve_name(owner), name), after)):
            slots.group_states[0].hint(0)
            await until(lambda: stats(server).get("released") == returned)
            slots.group_states[0].hint(0)  # as the wake token does, for which no test waits here
            await until(lambda: slots.counters.settled["acked"] == SLOTS)
        assert not slots.running
    assert len(handler.began) == SLOTS
    assert handler.attempts == {1}
    assert stats(server)["released"] == returned

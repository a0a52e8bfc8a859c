"""A call that keeps a task returns the due time that is stored, in every state that a kept task can have.

Every verb before such a call is in test_machine.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import App, NewTask, SyncClient, TasksRefused
from delayq.contract import Finished
from delayq.protocol.commands import Commands
from delayq.worker.settlements import Settlement, settle_call

from tests.redis.commands import ISO_LATER, LATER, answer, on
from tests.redis.state import NOW, Shard, envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.results import Lease

pytestmark = pytest.mark.each_redis
HOUR_MS = 3_600_000
DUE = NOW + 500


def waits(_: Shard) -> int:
    return DUE


def rescheduled(shard: Shard) -> int:
    shard.run(shard.commands.reschedule("a", str(NOW + 900), max_delay_ms=HOUR_MS))
    return NOW + 900


def claimed(shard: Shard) -> int:
    lease(shard)
    return DUE


def retrying(shard: Shard) -> int:
    shard.run(shard.commands.retry(0, [lease(shard).member, 7000, 1, "boom"], max_attempts=9))
    return DUE + 7000


def in_its_second_run(shard: Shard) -> int:
    due_ms = retrying(shard)
    lease(shard, due_ms)
    return due_ms


def suspect(shard: Shard) -> int:
    lease(shard)
    shard.clock(DUE + 60_001)
    shard.run(shard.commands.reclaim(0, max_crashes=3))
    return DUE


def dead(shard: Shard) -> int:
    shard.run(shard.commands.bury(0, [lease(shard).member, "no"]))
    return DUE


def finished(shard: Shard) -> int:
    commands = Commands(shard.commands.queue, finished=Finished(seconds=3600))
    shard.run(settle_call(commands, [Settlement("ack", lease(shard))], 1))
    return DUE


def lease(shard: Shard, at_ms: int = DUE) -> Lease:
    shard.clock(at_ms)
    [found] = shard.run(shard.commands.claim(0, 1, 60_000)).leases
    return found


@pytest.mark.parametrize(
    "happened",
    [waits, rescheduled, claimed, retrying, in_its_second_run, suspect, dead, finished],
    ids=lambda each: each.__name__,
)
def test_a_kept_task_is_returned_with_the_due_time_that_is_stored(
    client: SyncClient, shard: Shard, happened: Callable[[Shard], int]
) -> None:
    """Of one call, of calls with several tasks, and beside new tasks."""
    client.schedule("first", due_ms=DUE, task_id="a")
    due_ms = happened(shard)
    before = shard.whole()
    kept = client.schedule("second", due_ms=NOW + HOUR_MS, task_id="a", if_exists="keep")
    assert (kept.id, kept.outcome, kept.due_ms) == ("a", "kept", due_ms)
    assert shard.whole() == before
    tasks = [NewTask(n, due_ms=NOW + n * HOUR_MS, task_id=task_id) for n, task_id in enumerate("bac", 1)]
    assert [
        (each.id, each.outcome, each.due_ms) for each in client.schedule_many(tasks, if_exists="keep")
    ] == [
        ("b", "created", NOW + HOUR_MS),
        ("a", "kept", due_ms),
        ("c", "created", NOW + 3 * HOUR_MS),
    ]


def test_a_debounced_task_is_returned_with_its_latest_due_time_where_that_is_earlier(
    client: SyncClient, shard: Shard
) -> None:
    """Created, replaced, and as a follow-up; the due time of a call may be later than the debounce permits."""

    def call(due_ms: int) -> tuple[str, int]:
        done = client.schedule(1, due_ms=due_ms, task_id="a", if_exists="debounce", debounce_ms=1000)
        return done.outcome, done.due_ms

    assert call(NOW + HOUR_MS) == ("created", NOW + 1000)
    assert call(NOW + 700) == ("replaced", NOW + 700)
    shard.clock(NOW + 600)
    assert call(NOW + HOUR_MS) == ("replaced", NOW + 1000)
    shard.clock(NOW + 1000)
    shard.run(shard.commands.claim(0, 1, 60_000))
    assert call(NOW + HOUR_MS) == ("follows", NOW + 2000)
    assert call(NOW + 1500) == ("follows", NOW + 1500)


def test_a_call_whose_reply_was_lost_returns_the_due_time_of_its_first_try(shard: Shard) -> None:
    """A delay counts from the start of each try."""
    body = envelope()[:-6]
    assert shard.store("a", "+500", body).due_ms == {}
    shard.clock(NOW + 40)
    again = shard.store("a", "+500", body, repeated=1)
    assert (again.notes, again.due_ms) == ({0: "repeated"}, {0: NOW + 500})


def test_a_task_that_is_refused_has_no_due_time_and_costs_the_others_none(
    client: SyncClient, shard: Shard
) -> None:
    client.schedule(1, due_ms=DUE, task_id="a")
    tasks = [NewTask(n, due_ms=NOW + n, task_id=task_id) for n, task_id in enumerate("ab", 7000)]
    with pytest.raises(TasksRefused) as caught:
        client.schedule_many(tasks)
    assert (list(caught.value.refused), caught.value.scheduled) == ([0], [("b", NOW + 7001, "created")])
    assert shard.whole().delayed == {"a": DUE, "b": NOW + 7001}


def test_a_kind_and_a_command_return_it_too(orders: Shard) -> None:
    app = App()

    @app.task
    def remind(order: int) -> None: ...

    with SyncClient(orders.server.url, queue="orders") as client:
        app.bind(client)
        remind.options(id="7", delay="1h").schedule_sync(7)
        remind.reschedule_sync("7", delay="30m")
        kept = remind.options(id="7", delay="3h", if_exists="keep").schedule_sync(8)
    assert (kept.id, kept.outcome, kept.due_ms) == ("remind:7", "kept", LATER)
    command = (
        "schedule",
        "orders",
        "1",
        "--kind",
        "remind",
        "--id",
        "7",
        "--in",
        "5s",
        "--if-exists",
        "keep",
    )
    assert on(orders, *command).stdout == f"kept remind:7, due {ISO_LATER}\n"
    orders.clock(LATER)
    orders.run(orders.commands.claim(0, 1, 60_000))
    told = {"id": "remind:7", "outcome": "kept", "due_ms": LATER, "due": ISO_LATER}
    assert answer(orders, *command) == told

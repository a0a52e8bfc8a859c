"""The testing kit: tasks of an App run in the test, by the scripts of real workers, when the test says so."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from delayq import App, Bury, Context, Retry
from delayq.contract import parse
from delayq.protocol.results import Settled
from delayq.testing import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

app = App()
MAILS: list[tuple[int, int]] = []


@app.task(max_attempts=4, retry_delays=["1h", "1d"])
async def remind(context: Context, order: int) -> None:
    if context.task.attempt < 4:
        raise Retry(f"mail server is away, attempt {context.task.attempt}")
    MAILS.append((order, context.task.attempt))
    await report.options(delay="1d", id=f"order-{order}").schedule("sent", order=order)


@app.task
def report(what: str, *, order: int) -> None:
    if order < 0:
        raise Bury(f"{what}: no such order")


@pytest.fixture
def queue(delayq_queue: Callable[[App], Queue]) -> Queue:
    MAILS.clear()
    return delayq_queue(app)


def test_a_reminder_of_30_days_with_three_retries_takes_less_than_a_second(queue: Queue) -> None:
    began = time.monotonic()
    remind.options(delay="30d", id="order-7").schedule_sync(7)
    waiting = queue.assert_scheduled(remind, {"order": 7}, id="order-7")
    assert abs(waiting.due - datetime.now(UTC) - timedelta(days=30)) < timedelta(seconds=20)
    queue.advance(days=29, hours=23)
    assert queue.run_due() == []
    queue.advance(hours=1)
    [first] = queue.run_due()
    assert (first.kind, first.id, first.attempt, first.outcome) == ("remind", "order-7", 1, Settled.RETRIED)
    assert "attempt 1" in first.error
    assert queue.run_due() == []
    queue.advance(hours=1)
    [second] = queue.run_due()
    later = []
    for _ in range(2):
        queue.advance(hours=23)
        assert queue.run_due() == []
        queue.advance(hours=1)
        later += queue.run_due()
    assert [run.attempt for run in (second, *later)] == [2, 3, 4]
    assert (later[-1].outcome, MAILS) == (Settled.ACKED, [(7, 4)])
    assert queue.assert_scheduled(report, {"order": 7}).arguments == {"what": "sent", "order": 7}
    assert time.monotonic() - began < 20, "seconds of a busy machine, and not days"


def test_what_is_scheduled_is_told_when_it_is_not_what_was_expected(queue: Queue) -> None:
    report.schedule_sync("a", order=1)
    report.options(delay="1d").schedule_sync("b", order=1)
    assert [each.arguments["what"] for each in queue.scheduled()] == ["a", "b"]
    with pytest.raises(
        AssertionError, match=r"one task report with \{'order': 1\}, found 2; scheduled:\n  Sched"
    ) as two:
        queue.assert_scheduled(report, {"order": 1})
    assert "'what': 'b'" in str(two.value)
    with pytest.raises(
        AssertionError, match=r"expected one task remind with \{\}, found 0; scheduled:\n  nothing"
    ):
        queue.assert_scheduled(remind)


def test_tasks_run_in_due_order_and_each_outcome_is_told(queue: Queue) -> None:
    report.options(delay="2s", id="later").schedule_sync("b", order=1)
    report.options(delay="1s", id="sooner").schedule_sync("a", order=-1)
    queue.client.schedule({}, delay_ms=1500, kind="unheard", task_id="x")
    queue.advance(seconds=2)
    runs = queue.run_due()
    assert [(run.kind, run.id, run.outcome, run.error) for run in runs] == [
        ("report", "sooner", Settled.BURIED, "a: no such order"),
        ("unheard", "x", Settled.PARKED, ""),
        ("report", "later", Settled.ACKED, ""),
    ]
    counts = queue.client.counts()
    assert (counts.parked, counts.dead, counts.waiting) == (1, 1, 0)
    queue.advance(days=1)
    assert queue.client.counts().parked == 1


async def test_inside_an_event_loop(queue: Queue) -> None:
    async with app:
        await report.options(delay="1d").schedule("a", order=1)
        queue.advance(days=1)
        [run] = await queue.run_due_async()
        await report.schedule("b", order=1)  # the client is open still
    assert run.outcome is Settled.ACKED


def test_each_test_has_a_queue_of_its_own_and_leaves_nothing(delayq_redis_url: str) -> None:
    document = parse(
        {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": "orders"},
            "spec": {
                "redis": {"standalone": {"host": "redis.invalid"}},
                "handler": {"python": {"app": "shop:app"}},
                "shards": 3,
                "delivery": {"maxAttempts": 1},
            },
        }
    )
    shop = App()

    @shop.task
    def fails() -> None:
        raise ValueError("no")

    with Queue(shop, delayq_redis_url, document) as one, Queue(App(), delayq_redis_url) as other:
        for _ in range(9):
            fails.schedule_sync()
        assert {run.outcome for run in one.run_due()} == {Settled.BURIED}
        assert (one.client.counts().dead, other.client.counts().dead) == (9, 0)
        client, url = one.client, one.client.address
    with pytest.raises(RuntimeError, match="this App has no queue"):
        fails.schedule_sync()
    from delayq import SyncClient  # noqa: PLC0415

    with SyncClient(url, queue=client.queue, shards=3) as left:
        assert left.counts().dead == 0

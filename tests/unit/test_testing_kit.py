"""The testing kit: tasks of an App run in the test, by the scripts of real workers, when the test says so."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable  # noqa: TC003 -- annotations that are read
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path  # noqa: TC003 -- as above
from typing import TYPE_CHECKING, Any

import pytest
from delayq import App, Bury, Context, Retry, SyncClient
from delayq.client.encoding import NewTask
from delayq.handlers import cancelled
from delayq.protocol.commands import BATCH, Commands
from delayq.protocol.results import Settled, State
from delayq.testing import Queue
from sqlalchemy import text

from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

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


PACKED: list[list[int]] = []


@app.task(batch=500, max_attempts=2)
async def pack(orders: list[int]) -> list[Bury | None]:
    PACKED.append(orders)
    if 13 in orders and len(orders) > 1:
        raise ValueError("13")
    return [Bury(f"no order {order}") if order in {13, 14} else None for order in orders]


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
    assert (first.kind, first.id, first.attempt, first.outcome) == (
        "remind",
        "remind:order-7",
        1,
        Settled.RETRIED,
    )
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


def test_a_failed_expectation_lists_the_scheduled_tasks(queue: Queue) -> None:
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


def test_tasks_run_in_due_order_and_each_outcome_is_reported(queue: Queue) -> None:
    report.options(delay="2s", id="later").schedule_sync("b", order=1)
    report.options(delay="1s", id="sooner").schedule_sync("a", order=-1)
    queue.client.schedule({}, delay_ms=1500, kind="unheard", task_id="x")
    queue.advance(seconds=2)
    runs = queue.run_due()
    assert [(run.kind, run.id, run.outcome, run.error) for run in runs] == [
        ("report", "report:sooner", Settled.BURIED, "a: no such order"),
        ("unheard", "unheard:x", Settled.PARKED, ""),
        ("report", "report:later", Settled.ACKED, ""),
    ]
    counts = queue.client.counts()
    assert (counts.parked, counts.dead, counts.waiting) == (1, 1, 0)
    queue.advance(days=1)
    assert queue.client.counts().parked == 1


def sharded(**spec: object) -> DelayQueue:
    """A document with three shards."""
    return document({"python": {"app": "shop:app"}}, shards=3, **spec)


def test_what_is_scheduled_is_compared_as_the_function_receives_it(queue: Queue) -> None:
    @app.task
    def ship(day: date, raw: bytes, *, fast: bool = False) -> None: ...

    try:
        ship.options(delay="1d").schedule_sync(date(2026, 1, 2), b"\xff")
        found = queue.assert_scheduled(ship, {"day": date(2026, 1, 2), "raw": b"\xff", "fast": False})
        assert found.arguments == {"day": date(2026, 1, 2), "raw": b"\xff", "fast": False}
        for wrong in ({"day": date(2026, 1, 3)}, {"fast": True}, {"slow": False}):
            with pytest.raises(AssertionError, match="found 0"):
                queue.assert_scheduled(ship, wrong)
    finally:
        del app._kinds["ship", 1]
    queue.client.schedule([1], delay_ms=9999, kind="report", task_id="x")
    assert [dict(each.arguments) for each in queue.scheduled(report)] == [{"": [1]}]


def test_limits_hold_nothing_back_and_shards_run_in_one_due_order(
    delayq_queue: Callable[[App, DelayQueue], Queue],
) -> None:
    queue = delayq_queue(app, sharded(limits={"ratePerSecond": 1, "burst": 3, "maxInFlight": 3}))
    ids = [f"report:n{n:02d}" for n in range(30)]
    for n, each in enumerate(ids):
        report.options(delay=timedelta(milliseconds=60_000 + n), id=each).schedule_sync("a", order=1)
    assert len({queue.commands.shard_of(each) for each in ids}) == 3
    queue.advance(minutes=2)
    assert [run.id for run in queue.run_due()] == ids


def test_a_history_works_as_with_workers_and_ends_as_time_passes(
    delayq_queue: Callable[[App, DelayQueue], Queue],
) -> None:
    queue = delayq_queue(app, sharded(retention={"finished": {"seconds": 3600}}))
    report.options(delay="1d", id="a").schedule_sync("a", order=1)
    view = queue.client.get("report:a")
    assert view is not None
    queue.advance(days=1, minutes=5)
    queue.run_due()
    queue.advance(minutes=59)
    done = queue.client.get("report:a")
    assert done is not None
    assert (done.state, done.attempts) == (State.DONE, 1)
    assert done.late_ms is not None
    assert 300_000 <= done.late_ms < 330_000
    assert view.scheduled_ms - done.scheduled_ms == timedelta(days=1, minutes=64) // timedelta(milliseconds=1)
    again = report.options(id="a", if_exists="keep")
    assert again.schedule_sync("a", order=1).outcome == "kept"
    queue.advance(minutes=1)
    assert queue.client.get("report:a") is None
    assert again.schedule_sync("a", order=1).outcome == "created"


def test_all_parked_tasks_run_when_their_kind_is_known(queue: Queue) -> None:
    tasks = [NewTask({}, 0, kind="once_unknown", task_id=f"n{n}") for n in range(BATCH * 2 + 1)]
    queue.client.schedule_many(tasks)
    assert {run.outcome for run in queue.run_due()} == {Settled.PARKED}

    @app.task
    def once_unknown() -> None: ...

    try:
        assert len(queue.run_due()) == len(tasks)
    finally:
        del app._kinds["once_unknown", 1]


async def test_a_queue_is_not_made_for_an_app_that_is_open(delayq_redis_url: str) -> None:
    shop = App(sharded())
    async with shop:
        with pytest.raises(RuntimeError, match="leave `async with app` before"):
            Queue(shop, delayq_redis_url)
        assert shop.client.queue == "orders"


def test_a_lifespan_that_failed_once_leaves_nothing_open(delayq_queue: Callable[[App], Queue]) -> None:
    states = [OSError("no database"), "state"]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[object]:
        state = states.pop(0)
        if isinstance(state, OSError):
            raise state
        yield state

    shop = App(lifespan=lifespan)

    @shop.task
    async def again(context: Context) -> None:
        assert context.state == "state"
        await again.options(delay="1d").schedule()

    queue = delayq_queue(shop)
    again.schedule_sync()
    with pytest.raises(OSError, match="no database"):
        queue.run_due()
    [run] = queue.run_due()
    assert run.outcome is Settled.ACKED


@pytest.mark.parametrize("how", ["coroutine", "function", "batch"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, pytest.fail.Exception, GeneratorExit])
def test_what_is_no_exception_of_a_task_ends_run_due(
    delayq_queue: Callable[[App], Queue], error: type[BaseException], how: str
) -> None:
    shop = App()

    async def run(numbers: list[int]) -> None:
        raise error(f"enough: {numbers}")

    def run_plain(numbers: list[int]) -> None:
        raise error(f"enough: {numbers}")

    options: Any = {"batch": 2} if how == "batch" else {}
    kind: Any = shop.task(name="run", **options)(run_plain if how == "function" else run)
    queue = delayq_queue(shop)
    kind.schedule_sync(1 if how == "batch" else [1])
    with pytest.raises(error, match="enough"):
        queue.run_due()
    assert queue.assert_scheduled(kind).attempt == 1


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_cancellation_of_run_due_is_none_of_the_task(
    delayq_queue: Callable[[App], Queue], *, swallows: bool
) -> None:
    shop = App()

    @shop.task
    async def waits() -> None:
        with suppress(asyncio.CancelledError) if swallows else nullcontext():
            await asyncio.sleep(60)

    queue = delayq_queue(shop)
    waits.schedule_sync()
    waits.schedule_sync()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await queue.run_due_async()
    assert [each.attempt for each in queue.scheduled()] == [1, 1]


async def test_inside_an_event_loop(queue: Queue) -> None:
    async with app:
        await report.options(delay="1d").schedule("a", order=1)
        queue.advance(days=1)
        [run] = await queue.run_due_async()
        await report.schedule("b", order=1)  # the client is open still
    assert run.outcome is Settled.ACKED


def test_each_test_has_a_queue_of_its_own_and_leaves_nothing(delayq_redis_url: str) -> None:
    shop = App()

    @shop.task
    def fails() -> None:
        raise ValueError("no")

    with (
        Queue(shop, delayq_redis_url, sharded(delivery={"maxAttempts": 1})) as one,
        Queue(App(), delayq_redis_url) as other,
    ):
        for _ in range(9):
            fails.schedule_sync()
        assert {run.outcome for run in one.run_due()} == {Settled.BURIED}
        assert (one.client.counts().dead, other.client.counts().dead) == (9, 0)
        client, url = one.client, one.client.address
    with pytest.raises(RuntimeError, match="this App has no queue"):
        fails.schedule_sync()
    with SyncClient(url, queue="mine") as mine:
        shop.bind(mine)
        with Queue(shop, delayq_redis_url) as again:
            assert shop.sync_client.queue == again.client.queue
        assert shop.sync_client is mine, "it is bound as before"
    with SyncClient(url, queue=client.queue, shards=3) as left:
        assert left.counts().dead == 0


def test_due_tasks_of_a_batch_are_one_call_and_others_run_in_their_order(queue: Queue) -> None:
    PACKED.clear()
    pack.options(delay="1s", id="a").schedule_sync(1)
    report.options(delay="2s", id="b").schedule_sync("sent", order=1)
    pack.options(delay="3s", id="c").schedule_sync(14)
    pack.options(delay="1d").schedule_sync(2)
    queue.advance(seconds=3)
    assert [(run.kind, run.id, run.outcome, run.error) for run in queue.run_due()] == [
        ("pack", "pack:a", Settled.ACKED, ""),
        ("pack", "pack:c", Settled.BURIED, "no order 14"),
        ("report", "report:b", Settled.ACKED, ""),
    ]
    assert PACKED == [[1, 14]]
    assert queue.assert_scheduled(pack, {"item": 2}).attempt == 1


def test_a_call_of_a_batch_that_fails_is_repeated_with_each_of_its_tasks_alone(queue: Queue) -> None:
    PACKED.clear()
    for order in (12, 13):
        pack.schedule_sync(order)
    assert [(run.outcome, run.attempt) for run in queue.run_due()] == [(Settled.RETRIED, 1)] * 2
    queue.advance(hours=1)
    runs = sorted((run.outcome, run.attempt) for run in queue.run_due())
    assert runs == [(Settled.ACKED, 2), (Settled.BURIED, 2)]
    assert sorted(map(sorted, PACKED)) == [[12], [12, 13], [13]]


def test_a_call_of_a_batch_takes_more_than_one_claim_returns(queue: Queue) -> None:
    PACKED.clear()
    queue.client.schedule_many(pack.options().task(nth) for nth in range(100, 100 + BATCH + 50))
    assert len(queue.run_due()) == BATCH + 50
    assert [len(orders) for orders in PACKED] == [BATCH + 50]


def test_a_task_waits_an_hour_for_a_worker_that_its_arguments_fit_and_again_once_it_is_redriven(
    queue: Queue,
) -> None:
    """No attempt is charged; the delays double."""
    queue.client.schedule({"what": "a"}, delay_ms=0, kind="report", task_id="x")
    for _ in range(2):
        waits = list[int]()
        while (run := queue.run_due()[0]).outcome is Settled.RETRIED:
            assert run.attempt == 1
            [waiting] = queue.scheduled()
            waits.append(round(waiting.due.timestamp() - queue.client.counts().now_ms / 1000))
            queue.advance(seconds=waits[-1])
        assert waits == [30, 30, 60, 120, 240, 480, *[600] * 5]
        assert (run.outcome, run.error.partition(":")[0]) == (Settled.BURIED, "task report")
        assert run.error.endswith("; no worker that they fit has come within 60 minutes")
        assert queue.client.dlq_redrive(["x"], kind="report").tasks == 1


def test_time_that_passes_counts_for_a_debounced_task(queue: Queue) -> None:
    for step in range(4):  # after 0, 30, 70 and 110 minutes
        report.options(delay="1h", id="x", debounce="2h30m").schedule_sync(f"call {step}", order=1)
        assert queue.run_due() == []
        queue.advance(minutes=40 if step else 30)
    [run] = queue.run_due()
    assert (run.kind, run.id, queue.scheduled()) == ("report", "report:x", [])


def test_a_late_task_that_a_claim_meets_does_not_end_run_due(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No scanner has ended it before."""
    report.options(delay="30m", deadline="1m", id="late").schedule_sync("late", order=1)
    report.options(delay="1h", id="next").schedule_sync("next", order=2)
    with monkeypatch.context() as patched:
        expire = Commands.expire
        patched.setattr(Commands, "expire", lambda commands, shard: expire(commands, shard, limit=0))
        queue.advance(hours=2)
    assert [run.id for run in queue.run_due()] == ["report:next"]
    assert queue.client.counts().dead == 1


NIGHTLY = """
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {{name: nightly}}
spec:
  queueRef: {{name: orders}}
  everySeconds: 86400
  misfire: {{policy: {}}}
  task: {{kind: nominal}}
"""
DAYS: list[int] = []


@app.task
def nominal(context: Context) -> None:
    assert context.task.nominal_ms is not None
    DAYS.append(context.task.nominal_ms // 86_400_000)


@pytest.mark.parametrize(("policy", "after_outage"), [("RunOnce", [4]), ("RunAll", [2, 3, 4])])
def test_a_schedule_recurs_while_time_passes(
    queue: Queue, tmp_path: Path, policy: str, after_outage: list[int]
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(NIGHTLY.format(policy))
    queue.apply_schedule(file)
    DAYS.clear()
    today = time.time_ns() // 86_400_000_000_000
    assert queue.run_due() == []
    queue.advance(days=1)
    [run] = queue.run_due()
    assert (run.kind, run.outcome, DAYS) == ("nominal", "acked", [today + 1])
    queue.advance(days=3)  # without workers
    queue.run_due()
    assert DAYS[1:] == [today + day for day in after_outage]


def test_the_schedules_of_an_app_recur(delayq_queue: Callable[[App], Queue]) -> None:
    recurring, regions = App(), list[str]()

    @recurring.schedule(cron="0 3 * * *", payload={"region": "eu"})
    @recurring.task
    def summary(region: str) -> None:
        regions.append(region)

    queue = delayq_queue(recurring)
    queue.apply_schedules()
    queue.advance(days=1)
    assert [(run.kind, run.outcome) for run in queue.run_due()] == [("summary", "acked")]
    assert regions == ["eu"]


def test_a_schedule_that_was_deleted_recurs_no_more(queue: Queue, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(NIGHTLY.format("RunAll"))
    queue.apply_schedule(file)
    queue.client.delete_schedule("nightly")
    queue.advance(days=1)
    assert queue.run_due() == []


def test_occurrences_that_do_not_fit_are_an_error(delayq_queue: Callable[..., Queue], tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(
        "apiVersion: delayq.dev/v1alpha1\nkind: DelayQueue\nmetadata: {name: orders}\n"
        "spec: {redis: {standalone: {host: x}}, handler: {exec: {command: [a]}}, limits: {maxLength: 1}}\n"
        f"---{NIGHTLY.format('RunAll')}"
    )
    queue = delayq_queue(app, file)
    queue.apply_schedule(file)
    with pytest.raises(
        AssertionError, match=r"spec\.limits has no room for 1 occurrence of schedule nightly"
    ):
        queue.advance(days=1)


def test_pytest_loads_the_plugin_and_nothing_that_it_does_not_need_yet() -> None:
    """In each run of each project that has delayq installed."""
    program = (
        "import sys, delayq.testing.plugin; sys.exit(bool({'redis', 'yaml', 'delayq.app'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


GUARDED = document(
    {"python": {"app": "unused:app"}},
    guard={
        "sqlUnique": {"databaseSecretRef": {"name": "shop-database"}},
        "appliesTo": "NamedKinds",
        "kinds": ["push"],  # another handler runs it
    },
)


def test_a_guarded_function_gets_the_transaction_and_a_second_run_is_refused(
    delayq_queue: Callable[..., Queue], tmp_path: Path
) -> None:
    """Both in a coroutine and in a thread; what fails leaves nothing in the database."""
    shop, file = App(), tmp_path / "shop.db"
    insert = text("INSERT INTO refunds VALUES (:order)")

    @shop.task(guard=True, max_attempts=2, retry_delays=["1s"])
    async def refund(context: Context[Any, Any], order: int) -> None:
        await context.connection.execute(insert, {"order": order})
        if context.task.attempt == 1 and order == 8:
            raise KeyError("card")

    @shop.task(guard=True)
    def refund_in_thread(context: Context[Any, Any], order: int) -> None:
        context.connection.execute(insert, {"order": order})

    @shop.task
    async def remind(context: Context, order: int) -> None:
        assert context.connection is None, order

    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE refunds (order_id INTEGER)")
    queue = delayq_queue(shop, GUARDED, database=f"sqlite+aiosqlite:///{file}")
    for order in (7, 8):
        refund.options(id=f"order-{order}").schedule_sync(order)
    refund_in_thread.schedule_sync(9)
    remind.schedule_sync(7)
    first = {(run.kind, run.id.partition("-")[2]): run.outcome for run in queue.run_due()}
    assert first["refund", "8"] == "retried"
    assert set(first.values()) == {"acked", "retried"}
    queue.advance(seconds=1)
    refund.options(id="order-7").schedule_sync(7)  # as if a worker had died before the ack
    assert [run.outcome for run in queue.run_due()] == ["acked", "acked"]
    with closing(sqlite3.connect(file)) as database:
        assert sorted(database.execute("SELECT order_id FROM refunds")) == [(7,), (8,), (9,)]


async def test_guarded_functions_run_in_an_async_test_and_in_several_queues_of_one_database(
    delayq_queue: Callable[..., Queue], tmp_path: Path
) -> None:
    shop, ran = App(), list[str]()

    @shop.task(guard=True)
    async def refund(context: Context) -> None:
        ran.append(context.task.queue)

    for _ in range(2):
        queue = delayq_queue(shop, GUARDED, database=f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        for _ in range(2):
            await asyncio.to_thread(refund.options(id="order-7").schedule_sync)
            await queue.run_due_async()
    assert len(ran) == len({*ran}) == 2


def test_a_database_needs_a_document_with_a_sql_guard(delayq_queue: Callable[..., Queue]) -> None:
    with pytest.raises(ValueError, match=r"database: expected a document with spec\.guard\.sqlUnique"):
        delayq_queue(app, database="sqlite+aiosqlite://")


async def test_a_run_is_cancelled_as_by_a_worker(delayq_queue: Callable[[App], Queue]) -> None:
    """By the handler's own call here, or by the test's beside it; the others run, and the test is not cancelled."""
    stopped, began, polling, loop = App(), asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    @stopped.task
    async def wait(order: int) -> None:
        if order == 1:
            assert kit.client.cancel("wait:1", running=True) == "cancelling"
        began.set()
        await asyncio.Event().wait()

    @stopped.task
    def poll() -> None:
        loop.call_soon_threadsafe(polling.set)
        while not cancelled():
            time.sleep(0.01)

    @stopped.task
    def quick() -> None:
        kit.client.cancel("quick:4", running=True)

    kit = delayq_queue(stopped)
    wait.options(id="1").schedule_sync(1)
    [run] = await kit.run_due_async()
    assert (run.outcome, run.error, kit.client.get("wait:1")) == (Settled.CANCELLED, "", None)
    began.clear()
    wait.options(id="2").schedule_sync(2)
    quick.options(id="4", delay="1ms").schedule_sync()
    running = asyncio.create_task(kit.run_due_async())
    await began.wait()
    assert wait.cancel_sync("2", running=True) == "cancelling"
    assert [run.outcome for run in await running] == [Settled.CANCELLED, Settled.ACKED]
    poll.options(id="3").schedule_sync()
    running = asyncio.create_task(kit.run_due_async())
    await polling.wait()
    assert poll.cancel_sync("3", running=True) == "cancelling"
    assert [run.outcome for run in await running] == [Settled.CANCELLED]

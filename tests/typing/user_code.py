"""What users write against the public API: mypy and pyright check it strictly, see `make check`. Nothing runs it."""

# pyright: reportDeprecated=false
# Most code annotates the functions below @contextmanager with Iterator.
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator  # noqa: TC003 -- as users write it
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from delayq import (
    App,
    Backfilled,
    BatchContext,
    Bulk,
    Bury,
    Cancelled,
    Client,
    Context,
    Counts,
    DeadGroup,
    Durability,
    Duration,
    Failures,
    IfExists,
    LastRun,
    Limits,
    NewTask,
    NotConfirmed,
    Outcome,
    Redriven,
    Rescheduled,
    Retry,
    Schedule,
    ScheduleChange,
    Scheduled,
    Scheduling,
    Seen,
    State,
    SyncClient,
    Task,
    TaskKind,
    TaskRow,
    TaskRun,
    TasksRefused,
    TaskView,
    parse_schedule,
)
from delayq.guards import RedisLock, SqlUnique
from delayq.testing import Queue, Run, ScheduledTask
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pool:
    """What the lifespan holds."""

    size: int


@asynccontextmanager
async def lifespan() -> AsyncIterator[Pool]:
    yield Pool(5)


app = App("queue.yaml", queue="orders", url="redis://localhost", lifespan=lifespan, name="shop")
unbound = App()


# kinds


@app.task
async def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None:
    print(order, reason)


@app.task
def report(day: str) -> int:
    return len(day)


@app.task(
    name="send", version=2, max_attempts=8, timeout="2m", retry_delays=["10s", DAY], deadline="1h", guard=True
)
async def send_mail(context: Context, to: str) -> None:
    assert_type(context.state, object)
    print(to)
    if context.task.attempt > 1:
        raise Retry("the server is busy", delay="10m")
    if not context.task.headers.get("trace"):
        raise Bury("nobody asked for it")
    raise Seen


@app.task
async def refund(context: Context[Pool, AsyncConnection], order: int) -> None:
    assert_type(context.state, Pool)
    assert_type(context.connection, AsyncConnection)
    assert_type(context.task, Task)
    assert_type(context.task.due, datetime)
    await context.connection.commit()
    print(context.state.size, order)


@app.task(batch=100, batch_wait="200ms", max_attempts=3)
async def insert(rows: list[int]) -> list[Exception | None]:
    return [None if row else ValueError("zero") for row in rows]


@app.task(batch=50)
def insert_with(context: BatchContext[Pool], rows: list[str]) -> None:
    assert_type(context.state, Pool)
    print(context.tasks[0].id, rows)


@app.schedule(cron="0 2 * * *", time_zone="Europe/Lisbon", payload={"day": "monday"})
@app.schedule(every="1h", name="hourly", payload={"day": "today"}, misfire="Skip")
@app.task
def nightly(day: str) -> None:
    print(day)


# scheduling


async def schedule() -> None:
    async with app:
        done = await cancel_unpaid.options(
            delay="30m",
            id="order-7",
            if_exists="keep",
            headers={"trace": "1"},
            deadline=DAY,
            tags=["customer:7"],
        ).schedule(7, reason="late")
        assert_type(done, Scheduled)
        assert_type(done.due, datetime)
        assert_type(done.due_ms, int)
        assert_type(done.outcome, Outcome)
        assert_type(await report.schedule("monday"), Scheduled)
        assert_type(
            await send_mail.options(due=datetime.now(UTC) + DAY).schedule(to="me@example.com"), Scheduled
        )
        assert_type(await refund.options(debounce="10m", delay="1m", id="7").schedule(7), Scheduled)
        assert_type(await insert.schedule(7), Scheduled)
        assert_type(await insert_with.options(delay=DAY).schedule("row"), Scheduled)
        assert_type(cancel_unpaid.task(7), NewTask)
        assert_type(cancel_unpaid.options(delay="1h").task(7, reason="x"), NewTask)
        tasks = [cancel_unpaid.options(id=f"order-{n}").task(n) for n in range(9)]
        assert_type(await cancel_unpaid.schedule_many(tasks, if_exists="replace"), list[Scheduled])
        assert_type(await cancel_unpaid.cancel("order-7"), Cancelled)
        assert_type(await cancel_unpaid.get("order-7"), TaskView | None)
        assert_type(await cancel_unpaid.reschedule("order-7", delay="1h"), Rescheduled)
        assert_type(await app.apply_schedules(), dict[str, ScheduleChange])


def schedule_sync() -> None:
    assert_type(cancel_unpaid.schedule_sync(7), Scheduled)
    assert_type(cancel_unpaid.options(delay="1h").schedule_sync(7, reason="x"), Scheduled)
    assert_type(cancel_unpaid.schedule_many_sync([cancel_unpaid.task(7)]), list[Scheduled])
    assert_type(cancel_unpaid.cancel_sync("7"), Cancelled)
    assert_type(cancel_unpaid.get_sync("7"), TaskView | None)
    assert_type(cancel_unpaid.reschedule_sync("7", due=datetime.now(UTC)), Rescheduled)
    assert_type(app.apply_schedules_sync(), dict[str, ScheduleChange])
    app.close()


async def call() -> None:
    """A call runs the function itself."""
    assert_type(await cancel_unpaid(7, reason="x"), None)
    assert_type(report("monday"), int)
    await refund(Context(a_task(), Pool(1)), 7)
    assert_type(await insert([1, 2]), list[Exception | None])
    insert_with(BatchContext([a_task()], Pool(1)), ["row"])


def a_task() -> Task:
    raise NotImplementedError


def names(of: App) -> list[str]:
    return [f"{kind.name} {kind.version}" for kind in of]


def any_kind(kind: TaskKind[..., Any]) -> str:
    return kind.name


# middleware


@app.around_run
@contextmanager
def log_context(run: TaskRun) -> Iterator[None]:
    print(run.kind.name, [task.id for task in run.tasks], run.state)
    yield
    print(run.outcomes)


@app.around_run
@asynccontextmanager
async def transaction(run: TaskRun) -> AsyncIterator[None]:
    print(run.tasks[0].payload)
    yield


@app.around_schedule
@contextmanager
def trace(scheduling: Scheduling) -> Iterator[None]:
    scheduling.headers["trace"] = str(scheduling.arguments["order"])
    yield


# clients


async def client() -> None:
    async with Client(
        "redis://localhost", queue="orders", durability=Durability("Replicated", replicas=2), deadline="1h"
    ) as orders:
        kept: IfExists = "keep"
        wait: Duration = timedelta(minutes=5)
        done = await orders.schedule({"order": 7}, delay=wait, task_id="order-7", if_exists=kept)
        assert_type(done, Scheduled)
        task = await orders.get("order-7")
        if task is not None:
            assert_type(task.state, State)
            assert_type(task.due, datetime | None)
            assert_type(task.failed, Failures)
        assert_type(
            await orders.schedule_many(NewTask({"n": n}, delay="1m") for n in range(9)), list[Scheduled]
        )
        assert_type(await orders.cancel("order-7", kind="cancel_unpaid"), Cancelled)
        assert_type(await orders.reschedule("order-7", delay="1h"), Rescheduled)
        assert_type(await orders.counts(["1h"], instants=[datetime.now(UTC)]), Counts)
        assert_type(await orders.list(State.SCHEDULED, tag="customer:7"), list[TaskRow])
        async for view in orders.tasks(kind="remind", due_before=datetime.now(UTC)):
            assert_type(view, TaskView)
        assert_type(await orders.count_many(tag="customer:7"), Bulk)
        assert_type(await orders.cancel_many(tag="customer:7"), Bulk)
        assert_type(await orders.dlq_list(), list[TaskRow])
        assert_type(await orders.dlq_groups(), list[DeadGroup])
        assert_type(await orders.dlq_get(["order-7"]), list[TaskView])
        assert_type(await orders.dlq_redrive(["order-7"], rate_per_second=5), Redriven)
        assert_type(await orders.dlq_purge(["order-7"]), int)
        assert_type(await orders.schedules(), list[Schedule])
        schedule = await orders.get_schedule("nightly")
        if schedule is not None:
            assert_type(schedule.next_times(3), list[datetime])
            assert_type(schedule.last_run, LastRun | None)
        document = parse_schedule({"metadata": {"name": "nightly"}})
        assert_type(await orders.apply_schedule(document), ScheduleChange)
        assert_type(await orders.run_schedule("nightly"), str)
        assert_type(await orders.backfill_schedule("nightly", since=datetime.now(UTC)), Backfilled)


def sync_client() -> None:
    with SyncClient.from_document(Path("queue.yaml"), queue="orders") as orders:
        assert_type(orders, SyncClient)
        assert_type(orders.schedule(b"bytes", content_type="image/png"), Scheduled)
        assert_type(orders.list(State.DEAD), list[TaskRow])
        for view in orders.tasks():
            assert_type(view.payload, Any)
        try:
            orders.schedule_many([NewTask(1)])
        except TasksRefused as some:
            print(
                [task.id for task in some.scheduled], {at: str(error) for at, error in some.refused.items()}
            )
        except NotConfirmed as error:
            print([task.due for task in error.unconfirmed])
    SyncClient("redis://localhost", queue="orders", limits=Limits(max_length=9))


# guards and tests


async def guards(engine: AsyncEngine, task: Task) -> None:
    async with SqlUnique(engine, queue="orders")(task) as hold:
        await hold.connection.execute(text("SELECT 1"))
    async with RedisLock("redis://localhost", queue="orders")(task):
        pass


def test_that_the_task_runs(delayq_queue: Queue) -> None:
    cancel_unpaid.options(delay="30m").schedule_sync(7)
    assert_type(delayq_queue.scheduled(), list[ScheduledTask])
    delayq_queue.advance(minutes=30)
    assert_type(delayq_queue.run_due(), list[Run])
    assert_type(delayq_queue.client, SyncClient)

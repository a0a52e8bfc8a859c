"""The client for asyncio: the I/O of the generators in operations.py and dead_letters.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar, Unpack

from delayq.client.base import Filters, Groups, QueueClient, Rows, Schedules, Views, all_stored, selected
from delayq.client.batching import ScheduleBatches
from delayq.client.dead_letters import Redriven
from delayq.client.encoding import NewTask
from delayq.client.enqueue import Finish, IfExists, Start
from delayq.client.operations import VIEWS
from delayq.client.recurring import Backfilled, ScheduleChange
from delayq.client.routing import Each, Operation, Trip
from delayq.client.times import Moment, exact_instant, exact_span, moment
from delayq.connection import AsyncConnection
from delayq.contract.schedule import DelaySchedule
from delayq.durations import Duration
from delayq.errors import DelayQError, Unavailable
from delayq.protocol.results import (
    WAITING,
    Bulk,
    Cancelled,
    Counts,
    Page,
    Position,
    Rescheduled,
    Scheduled,
    State,
    TaskView,
)
from delayq.schedules.record import CLIENT
from delayq.schedules.stored import Schedule

T = TypeVar("T")


class Client(QueueClient):
    """A queue, for asyncio. Any number of coroutines may share one.

    async with Client("redis://localhost:6379/0", queue="orders") as orders:
        await orders.schedule({"order": 7}, delay="30m", task_id="order-7")
    """

    _open: AsyncConnection | None = None
    _confirming: AsyncConnection  # a connection that waits to be confirmed delays all later calls
    _batches: ScheduleBatches
    _process: int = 0  # that called open(): an event loop does not survive a fork
    _loop: asyncio.AbstractEventLoop | None = None  # of open(): other loops do not receive the replies
    _parents: tuple[
        AsyncConnection, ...
    ] = ()  # kept, because collecting a transport would affect the parent's event loop

    @property
    def _connection(self) -> AsyncConnection:
        if self._open is None:
            raise RuntimeError("this Client is not open: use it inside `async with`, or call open()")
        if self._process != os.getpid():
            raise RuntimeError("this Client was opened before a fork: call open() in the child process, too")
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this Client was opened in another event loop: call open() again once that has ended, make a Client "
                "for each, or use SyncClient"
            )
        return self._open

    async def open(self) -> Self:
        """Allow calls until close(). The first call connects. Does nothing if the client is open."""
        self._discard_stale()
        if self._open is None:
            self._open, self._confirming = AsyncConnection(self.address), AsyncConnection(self._patient)
            self._batches = ScheduleBatches(self._operations.writer, self._do)
            self._process, self._loop = os.getpid(), asyncio.get_running_loop()
        return self

    async def close(self) -> None:
        """Close the connections; calls in progress fail. open() opens the client again."""
        self._discard_stale()
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()
            await self._confirming.close()

    def _discard_stale(self) -> None:
        if self._open is not None and self._process != os.getpid():
            self._parents, self._open = (self._open, self._confirming), None
        elif self._loop is not None and self._loop.is_closed():
            self._open = None  # its event loop is closed, so its sockets cannot be closed

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def _do(self, operation: Operation[T], connection: AsyncConnection | None = None) -> T:
        answer: Any = None
        error: DelayQError | None = None
        started: set[asyncio.Future[Any]] = set()
        connection = connection or self._connection  # close() may run meanwhile
        try:
            while True:
                try:
                    asked = operation.throw(error) if error else operation.send(answer)
                except StopIteration as done:
                    result: T = done.value
                    return result
                try:
                    answer, error = await self._answer(connection, asked, started), None
                except DelayQError as raised:
                    error = raised
        except Unavailable as unreachable:
            self._explain(unreachable)
            raise
        finally:  # also after a cancellation
            for task in started:
                task.cancel()
            if started:
                await asyncio.gather(*started, return_exceptions=True)

    async def _answer(
        self,
        connection: AsyncConnection,
        asked: Any,  # noqa: ANN401 -- see Operation
        started: set[asyncio.Future[Any]],
    ) -> Any:  # noqa: ANN401 -- see Operation
        if getattr(asked, "confirm", None):
            connection = self._confirming
        match asked:
            case Start(calls, confirm):
                task = asyncio.ensure_future(connection.answers(calls, confirm))
                started.add(task)
                await asyncio.sleep(0)  # lets the task write to the socket
                return task
            case Finish(ticket):
                started.discard(ticket)
                return await ticket
            case Trip(calls, confirm, shards):
                return await connection.run(calls, confirm, shards)
            case Each(calls, confirm):
                return await connection.answers(calls, confirm)
            case float():
                return await asyncio.sleep(asked)
        return await connection.run(asked)

    async def schedule(  # noqa: PLR0913 -- what a task has
        self,
        payload: object,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        delay_ms: int | None = None,
        due_ms: int | None = None,
        task_id: str | None = None,
        if_exists: IfExists = "reject",
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        kind: str | None = None,
        version: int = 1,
        deadline: Duration | None = None,
        deadline_ms: int | None = None,
        debounce: Duration | None = None,
        debounce_ms: int | None = None,
        tags: Sequence[str] | None = None,
    ) -> Scheduled:
        """Store a task, due after `delay` ("30m" or a timedelta) or at `due` (a datetime with its zone); without, now.

        `delay_ms` and `due_ms` (Unix ms) are the same in milliseconds, by Redis' clock; the past means now.

        `payload` is any JSON value, or bytes with a `content_type`; `headers` are strings. Without a `task_id`, the ID
        is random. `kind` names what the task does, if the queue has several kinds, and `version` that of its payload.
        With a kind, a `task_id` is stored as KIND:ID. A task does not start later than `deadline` after its due time.
        `tags`, at most 8 of 64 bytes without spaces, are for cancel_many and its like.

        If the queue has a task with this ID, if_exists="reject" raises TaskExists, "keep" keeps that task, and
        "replace" stores the new one in its place; while that task is in flight, as its follow-up. With "debounce",
        each call replaces a task that waits, and its due time is at most `debounce` after the first call.

        Raises Refused (InvalidTask, TaskExists, QueueFull, …), which stores nothing, or Unavailable, after which the
        task may or may not be stored: call again with the same task_id and if_exists="keep", which stores a second
        task only if the first has finished by then. With `durability`, NotConfirmed means that the task is stored, but
        was not confirmed in time; the same applies.

        Concurrent calls share round trips, except with `durability`. Those about one ID have no order: await each.
        """
        task = NewTask(
            *(payload, delay_ms, due_ms, task_id, headers, content_type, kind, version),
            deadline_ms=deadline_ms,
            debounce_ms=debounce_ms,
            tags=tags,
            delay=delay,
            due=due,
            deadline=deadline,
            debounce=debounce,
        )
        return await self._batches.schedule(self._connection, task, if_exists)

    async def schedule_many(
        self, tasks: Iterable[NewTask], *, if_exists: IfExists = "reject"
    ) -> list[Scheduled]:
        """Store tasks, 500 per round trip. Raises TasksRefused if some, and only they, were refused.

        With `durability`, NotConfirmed lists the stored tasks that were not confirmed, and the refused ones.
        """
        return all_stored(await self._do(self._operations.schedule_many(tasks, if_exists)))

    async def cancel(self, task_id: str, *, kind: str | None = None, running: bool = False) -> Cancelled:
        """Delete a task that is not in flight, or the follow-up of one that is.

        With `running`, also let the worker of a task in flight cancel its run: the result is then CANCELLING, see
        docs/how-to/cancel.md. A task that waits is deleted as without it.

        With a `kind`, the stored ID is KIND:ID, as in schedule; `task_id` may be that, too. So do get, reschedule and
        the calls about dead letters.
        """
        return await self._do(self._operations.cancel(task_id, kind, running=running))

    async def reschedule(
        self,
        task_id: str,
        *,
        kind: str | None = None,
        delay: Duration | None = None,
        due: datetime | None = None,
        delay_ms: int | None = None,
        due_ms: int | None = None,
    ) -> Rescheduled:
        """Change the due time of a task that is not running; the time is given as in schedule."""
        when = moment(delay, due, exact=Moment(delay_ms, due_ms), task_id=task_id)
        return await self._do(self._operations.reschedule(task_id, *when, kind))

    async def count_many(
        self,
        *,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """Count the tasks that have all that is given: `tag`, `kind`, a due time. A dry run of cancel_many.

        Give at least one. Due times are from `due_from` on and before `due_before`, datetimes with their zone;
        `due_from_ms` and `due_before_ms` are the same in Unix ms. `progress` receives the numbers so far after each
        round trip. `in_flight` and `dead` are tasks that cancel_many and reschedule_many leave alone.
        """
        return await self._do(self._operations.bulk.count(selected(**chosen), progress))

    async def cancel_many(
        self,
        *,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """Cancel the tasks that have all that is given, and follow-ups; parameters as for count_many.

        Covers each task stored before the call, unless it is in flight or dead; later ones may be covered, too. After
        an error, call again: the numbers do not include what the failed call has cancelled.
        """
        return await self._do(self._operations.bulk.cancel(selected(**chosen), progress))

    async def reschedule_many(
        self,
        *,
        due: datetime | None = None,
        due_ms: int | None = None,
        shift: Duration | None = None,
        shift_ms: int | None = None,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """Change due times to `due`, or by `shift` ("-1h": earlier); other parameters as for count_many.

        Covers the same tasks as cancel_many, each once. After an error, a call with `due` may be repeated; one with
        `shift` would shift tasks again. `due_ms` and `shift_ms` are the same in milliseconds.
        """
        when = exact_instant(due, due_ms, "due"), exact_span(shift, shift_ms, "shift", signed=True)
        return await self._do(self._operations.bulk.reschedule(selected(**chosen), *when, progress))

    async def apply_schedule(
        self,
        schedule: DelaySchedule,
        *,
        owner: str = CLIENT,
        notes: Mapping[str, object] | None = None,
        checked: bool = False,
    ) -> ScheduleChange:
        """Create a recurring schedule, or change it: then occurrences created ahead are created anew.

        `schedule` comes from delayq.parse_schedule(). Raises SpecError, which names the field;
        ScheduleRefused if another owner has a schedule of this name, or the queue is full. `owner` and `notes` are
        for programs that keep schedules elsewhere: only the same owner may change it, and the record has the notes.
        `checked`: an earlier call with this schedule raised ScheduleRefused, so its times need not be checked again.
        """
        return await self._do(self._recurring.apply(schedule, owner=owner, notes=notes, checked=checked))

    async def sync_schedules(
        self, schedules: Sequence[DelaySchedule], *, owner: str, source: str = ""
    ) -> dict[str, ScheduleChange]:
        """Make these the schedules of an owner: create or change each, and delete its others of the same `source`.

        Returns what became of each, by name. ScheduleRefused names those that were refused; all others are written.
        """
        return await self._do(self._recurring.sync(schedules, owner, source))

    async def delete_schedule(self, name: str, *, owner: str = CLIENT) -> ScheduleChange:
        """Delete a schedule, and its occurrences that have not started; ScheduleRefused if it has another owner."""
        return await self._do(self._recurring.delete(name, owner=owner))

    async def schedules(self) -> Schedules:
        """Return the recurring schedules, in the order of their names."""
        return await self._do(self._recurring.schedules())

    async def get_schedule(self, name: str) -> Schedule | None:
        """Return a recurring schedule, which has its next times and its last run; None if there is none."""
        return await self._do(self._recurring.get(name))

    async def run_schedule(self, name: str) -> str:
        """Create an occurrence that is due now; returns its ID. ScheduleRefused if there is no such schedule."""
        return await self._do(self._recurring.run_now(name))

    async def backfill_schedule(
        self,
        name: str,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        since_ms: int | None = None,
        before_ms: int | None = None,
        dry_run: bool = False,
    ) -> Backfilled:
        """Create the occurrences with nominal times from `since` until before `before` that do not exist, all due now.

        Both are datetimes with their zone; `since_ms` and `before_ms` are the same in Unix ms.
        Those that ran and ended are created again, too. At most 10,000; ScheduleRefused for more.
        """
        times = exact_instant(since, since_ms, "since"), exact_instant(before, before_ms, "before")
        return await self._do(self._recurring.backfill(name, *times, dry_run=dry_run))

    async def get(self, task_id: str, *, kind: str | None = None) -> TaskView | None:
        """Return everything that is stored about a task; None when it is not in the queue."""
        return await self._do(self._operations.get(task_id, kind))

    async def check_durability(self) -> None:
        """Raise DelayQError if Redis cannot confirm writes as `durability` asks, as the first `schedule` would.

        Does nothing without `durability`, or if this client has found before that Redis can.
        """
        await self._do(self._operations.writer.check())

    async def counts(
        self,
        horizons: Sequence[Duration] = (),
        *,
        instants: Sequence[datetime] = (),
        horizons_ms: Sequence[int] = (),
        instants_ms: Sequence[int] = (),
    ) -> Counts:
        """Count tasks by state, and those that fall due within each horizon ("1h") and by each instant.

        `due_within` and `due_by` of the result have these as their keys. `horizons_ms` are horizons, and `instants_ms`
        are instants (Unix ms), in milliseconds.
        """
        return await self._do(
            self._operations.counts(horizons_ms, instants_ms, horizons=horizons, instants=instants)
        )

    async def list(
        self, state: State, *, offset: int = 0, limit: int = 100, **chosen: Unpack[Filters]
    ) -> Rows:
        """Return the first tasks in a state, by due time (lease expiry, time of death; parked ones by kind first).

        With filters, as of count_many, only the tasks that have all that is given.
        """
        rows = self._operations.rows(State(state), offset=offset, limit=limit, chosen=selected(**chosen))
        return await self._do(rows)

    async def page(
        self, state: State, *, after: Position | None = None, limit: int = 100, **chosen: Unpack[Filters]
    ) -> Page:
        """Return a page of the tasks in a state, and where the next one begins: its `after`, None after the last page.

        In the order of list(), with the same filters. No task is skipped or repeated that keeps its state and due time.
        With filters that few tasks fit, a page may have fewer than `limit` tasks, or none, before the last one.
        """
        found = self._operations.page(State(state), after=after, limit=limit, chosen=selected(**chosen))
        return await self._do(found)

    async def tasks(self, **chosen: Unpack[Filters]) -> AsyncIterator[TaskView]:
        """Iterate over the tasks that wait, with their payloads, by due time; with filters as of count_many.

        Yields the tasks that waited at the call and still do: those that are scheduled, due, retrying, suspect or
        parked. Memory for the IDs is needed at once, and tasks are read as they are used, 20 a round trip.
        """
        ids = await self._do(self._operations.waiting(selected(**chosen)))
        for at in range(0, len(ids), VIEWS):
            for view in await self._do(self._operations.views(ids[at : at + VIEWS])):
                if view.state in WAITING:
                    yield view

    async def dlq_list(
        self, ids: Sequence[str] | None = None, *, tag: str | None = None, kind: str | None = None
    ) -> Rows:
        """Return dead letters: all, or those with these ids, this tag and this kind ("": none)."""
        return await self._do(self._dead_letters.rows(ids, tag, kind))

    async def dlq_groups(self) -> Groups:
        """Return dead letters grouped by kind and error, the largest group first."""
        return await self._do(self._dead_letters.groups())

    async def dlq_get(self, ids: Sequence[str], *, kind: str | None = None) -> Views:
        """Return dead letters with payload and last error."""
        return await self._do(self._dead_letters.views(ids, kind))

    async def dlq_redrive(
        self,
        ids: Sequence[str],
        *,
        kind: str | None = None,
        rate_per_second: float | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Schedule dead letters again, with all their attempts, spread over time by `rate_per_second`."""
        return await self._do(self._dead_letters.redrive(ids, rate_per_second, kind, dry_run=dry_run))

    async def dlq_purge(
        self,
        ids: Sequence[str],
        *,
        kind: str | None = None,
        before: datetime | None = None,
        before_ms: int | None = None,
    ) -> int:
        """Delete dead letters; returns their number. Those that died at `before` or later stay."""
        died = exact_instant(before, before_ms, "before")
        return await self._do(self._dead_letters.purge(ids, died, kind))

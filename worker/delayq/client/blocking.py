"""The client for code without an event loop. The same methods as Client; a contract test compares them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from delayq.client.base import QueueClient, all_stored
from delayq.client.encoding import NewTask
from delayq.client.enqueue import Finish, IfExists, Start
from delayq.client.routing import Each, Trip
from delayq.client.times import Moment, moment
from delayq.connection import SyncConnection
from delayq.errors import DelayQError
from delayq.protocol.results import (
    Bulk,
    Cancelled,
    Counts,
    Rescheduled,
    Scheduled,
    Selection,
    State,
    TaskView,
)
from delayq.schedules.record import CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from delayq.client.base import Filters, Groups, Rows, Schedules, Views
    from delayq.client.dead_letters import Redriven
    from delayq.client.recurring import Backfilled, ScheduleChange
    from delayq.client.routing import Operation
    from delayq.client.times import Duration
    from delayq.connection.ticket import Ticket
    from delayq.contract.schedule import DelaySchedule
    from delayq.schedules.stored import Schedule

T = TypeVar("T")


class SyncClient(QueueClient):
    """A queue, for code without an event loop. Use as `with`; any number of threads may share one."""

    _open: SyncConnection | None = None

    @property
    def _connection(self) -> SyncConnection:
        if self._open is None:
            raise RuntimeError("this SyncClient is not open: use it inside `with`, or call open()")
        return self._open

    def open(self, *, max_connections: int | None = None) -> Self:
        """See Client.open. It keeps at most `max_connections` to each server (20); a call waits for a free one."""
        if self._open is None:
            most = max_connections or self._patient.max_connections
            self._open = SyncConnection(replace(self._patient, max_connections=most))
        return self

    def close(self) -> None:
        """See Client.close."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        """Open."""
        return self.open()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _do(self, operation: Operation[T]) -> T:
        answer: Any = None
        error: DelayQError | None = None
        started: set[Ticket] = set()
        connection = self._connection  # close() may run meanwhile
        try:
            while True:
                try:
                    asked = operation.throw(error) if error else operation.send(answer)
                except StopIteration as done:
                    result: T = done.value
                    return result
                try:
                    answer, error = self._answer(connection, asked, started), None
                except DelayQError as raised:
                    error = raised
        finally:
            for ticket in started:
                connection.abandon(ticket)

    @staticmethod
    def _answer(connection: SyncConnection, asked: Any, started: set[Ticket]) -> Any:  # noqa: ANN401 -- see Operation
        match asked:
            case Start(calls, confirm):
                ticket = connection.start(calls, confirm)
                started.add(ticket)
                return ticket
            case Finish(ticket):
                started.discard(ticket)
                return connection.finish(ticket)
            case Trip(calls, confirm, shards):
                return connection.run(calls, confirm, shards)
            case Each(calls, confirm):
                return connection.answers(calls, confirm)
            case float():
                return time.sleep(asked)
        return connection.run(asked)

    def schedule(  # noqa: PLR0913 -- what a task has
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
        """See Client.schedule."""
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
        return self._do(self._operations.schedule(task, if_exists))

    def schedule_many(self, tasks: Iterable[NewTask], *, if_exists: IfExists = "reject") -> list[Scheduled]:
        """See Client.schedule_many."""
        return all_stored(self._do(self._operations.schedule_many(tasks, if_exists)))

    def cancel(self, task_id: str, *, kind: str | None = None) -> Cancelled:
        """See Client.cancel."""
        return self._do(self._operations.cancel(task_id, kind))

    def reschedule(
        self,
        task_id: str,
        *,
        kind: str | None = None,
        delay: Duration | None = None,
        due: datetime | None = None,
        delay_ms: int | None = None,
        due_ms: int | None = None,
    ) -> Rescheduled:
        """See Client.reschedule."""
        when = moment(delay, due, exact=Moment(delay_ms, due_ms), task_id=task_id)
        return self._do(self._operations.reschedule(task_id, *when, kind))

    def count_many(
        self,
        *,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """See Client.count_many."""
        return self._do(self._operations.bulk.count(Selection(**chosen), progress))

    def cancel_many(
        self,
        *,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """See Client.cancel_many."""
        return self._do(self._operations.bulk.cancel(Selection(**chosen), progress))

    def reschedule_many(
        self,
        *,
        due_ms: int | None = None,
        shift_ms: int | None = None,
        progress: Callable[[Bulk], None] | None = None,
        **chosen: Unpack[Filters],
    ) -> Bulk:
        """See Client.reschedule_many."""
        return self._do(self._operations.bulk.reschedule(Selection(**chosen), due_ms, shift_ms, progress))

    def apply_schedule(
        self,
        schedule: DelaySchedule,
        *,
        owner: str = CLIENT,
        notes: Mapping[str, object] | None = None,
        checked: bool = False,
    ) -> ScheduleChange:
        """See Client.apply_schedule."""
        return self._do(self._recurring.apply(schedule, owner=owner, notes=notes, checked=checked))

    def sync_schedules(
        self, schedules: Sequence[DelaySchedule], *, owner: str, source: str = ""
    ) -> dict[str, ScheduleChange]:
        """See Client.sync_schedules."""
        return self._do(self._recurring.sync(schedules, owner, source))

    def delete_schedule(self, name: str, *, owner: str = CLIENT) -> ScheduleChange:
        """See Client.delete_schedule."""
        return self._do(self._recurring.delete(name, owner=owner))

    def schedules(self) -> Schedules:
        """See Client.schedules."""
        return self._do(self._recurring.schedules())

    def get_schedule(self, name: str) -> Schedule | None:
        """See Client.get_schedule."""
        return self._do(self._recurring.get(name))

    def run_schedule(self, name: str) -> str:
        """See Client.run_schedule."""
        return self._do(self._recurring.run_now(name))

    def backfill_schedule(
        self, name: str, *, from_ms: int, before_ms: int, dry_run: bool = False
    ) -> Backfilled:
        """See Client.backfill_schedule."""
        return self._do(self._recurring.backfill(name, from_ms, before_ms, dry_run=dry_run))

    def get(self, task_id: str, *, kind: str | None = None) -> TaskView | None:
        """See Client.get."""
        return self._do(self._operations.get(task_id, kind))

    def check_durability(self) -> None:
        """See Client.check_durability."""
        self._do(self._operations.writer.check())

    def counts(self, horizons_ms: Sequence[int] = (), *, instants_ms: Sequence[int] = ()) -> Counts:
        """See Client.counts."""
        return self._do(self._operations.counts(horizons_ms, instants_ms))

    def list(self, state: State, *, offset: int = 0, limit: int = 100) -> Rows:
        """See Client.list."""
        return self._do(self._operations.page(State(state), offset=offset, limit=limit))

    def dlq_list(
        self, ids: Sequence[str] | None = None, *, tag: str | None = None, kind: str | None = None
    ) -> Rows:
        """See Client.dlq_list."""
        return self._do(self._dead_letters.rows(ids, tag, kind))

    def dlq_groups(self) -> Groups:
        """See Client.dlq_groups."""
        return self._do(self._dead_letters.groups())

    def dlq_get(self, ids: Sequence[str], *, kind: str | None = None) -> Views:
        """See Client.dlq_get."""
        return self._do(self._dead_letters.views(ids, kind))

    def dlq_redrive(
        self,
        ids: Sequence[str],
        *,
        kind: str | None = None,
        rate_per_second: float | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """See Client.dlq_redrive."""
        return self._do(self._dead_letters.redrive(ids, rate_per_second, kind, dry_run=dry_run))

    def dlq_purge(self, ids: Sequence[str], *, kind: str | None = None, before_ms: int | None = None) -> int:
        """See Client.dlq_purge."""
        return self._do(self._dead_letters.purge(ids, before_ms, kind))

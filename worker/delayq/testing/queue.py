"""A queue for one test. Tasks run in the test's process, by the scripts of real workers, when the test says so."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from delayq import guards
from delayq.app import App, TaskKind
from delayq.app.arguments import InvalidArguments
from delayq.client.blocking import SyncClient
from delayq.client.document import read, read_schedules
from delayq.client.encoding import stored_id
from delayq.connection import Address, AsyncConnection, SyncConnection
from delayq.contract import DelayQueue, parse
from delayq.contract.schedule import DelaySchedule
from delayq.guards.coverage import coverage
from delayq.handlers.app import AppHandler
from delayq.handlers.base import Batch, HandlerCall
from delayq.protocol.commands import BATCH, Call, Commands
from delayq.protocol.envelope import JSON_TYPE, Occurrence, Task
from delayq.protocol.quota import room
from delayq.protocol.results import Lease, ScheduleRecord, Settled, State, TaskView
from delayq.protocol.scripts import script
from delayq.scaling.sentences import counted
from delayq.schedules.plan import planned_at_once
from delayq.schedules.record import alone, flat
from delayq.service.counters import WorkerCounters
from delayq.worker.batches import Call as BatchCall
from delayq.worker.executor import Executor
from delayq.worker.settlements import Settlement, settle_call
from delayq.worker.slots import Running

if TYPE_CHECKING:
    from delayq.guards.sql.guard import SqlGuard

LEASE_MS = 60_000
MOST_RUNS = 10_000
"""Of one run_due: more are taken for tasks that schedule each other without end."""
_ADVANCE = files("delayq") / "testing" / "advance.lua"


class Run(NamedTuple):
    """One run of a task."""

    kind: str
    id: str
    """The ID as it is stored: KIND:ID for the ID of options(id=…)."""
    attempt: int
    outcome: Settled
    error: str
    """The last error; empty when the task is done."""


class ScheduledTask(NamedTuple):
    """One task that waits."""

    kind: str
    id: str
    due: datetime
    arguments: Mapping[str, Any]
    """The arguments as the function receives them; of unknown kinds, as JSON values."""
    attempt: int
    """The number of its next run."""


class Queue:
    """The queue of an App. It binds the App, and deletes its tasks when it is closed."""

    def __init__(
        self,
        app: App,
        url: str,
        document: DelayQueue | str | Path | None = None,
        *,
        database: str | None = None,
    ) -> None:
        """`url` names the Redis. `document`, or its file, has shards, retry policy and history.

        Its name, spec.redis and handler.kinds are not used. With `database`, a URL of SQLAlchemy, tasks run under the
        SQL guard of the document in this database, where the guard's table is created. The rows there name this queue,
        so that queues of several tests may share it. ValueError if the document has no SQL guard.
        """
        if not isinstance(app, App):
            raise TypeError(f"expected an App, got {type(app).__name__}")
        described = read(document) if isinstance(document, str | Path) else document
        self._document = _named(described, f"test-{uuid.uuid4().hex}")
        self._guard = None if database is None else _guard(self._document, database)
        self.app, self._address = app, Address.from_url(url)
        spec = self._document.spec
        # Without limits, which would hold due tasks back.
        self._claims = Commands(
            self._document.queue,
            prefix=spec.redis.key_prefix,
            shards=spec.shards,
            drops_expired=spec.delivery.on_expired == "Drop",
            finished=spec.retention.finished,
        )
        with ExitStack() as stack:
            stack.enter_context(app.bound_to(self._document, url=self._address))
            self.client = stack.enter_context(SyncClient.from_document(self._document, url=self._address))
            self.commands = self.client.commands
            self._connection = SyncConnection(self._address)
            stack.callback(self._connection.close)
            stack.callback(self._erase)
            self._opened = stack.pop_all()
        self._passed_ms = 0
        self._recurring: dict[str, tuple[DelaySchedule, int]] = {}  # by name, with the cursor, ms

    def _erase(self) -> None:
        self._connection.run([self.commands.erase(keys.shard) for keys in self.commands.shards])

    def close(self) -> None:
        """Delete the tasks, and bind the App as it was before."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the queue."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def advance(self, **time_passed: float) -> None:
        """Let time pass for the queue: `advance(days=30)`, with the arguments of timedelta. Nothing runs by itself.

        Tasks that missed their deadline end, as a scanner would end them.
        """
        ms = timedelta(**time_passed) // timedelta(milliseconds=1)
        if ms < 0:
            raise ValueError(f"expected 0 or more, got {time_passed}")
        self._passed_ms += ms
        advance = script("advance", _ADVANCE.read_text(encoding="utf-8"))
        for shard in self.commands.shards:
            self._connection.one(Call(advance, advance.bind(shard, ms=ms), int, shard))
            while self._connection.one(self._claims.expire(shard.shard))[1]:
                pass
        for each in self.client.schedules():
            if each.name in self._recurring:
                self._recur(each.record)

    def apply_schedule(self, schedule: DelaySchedule | str | Path) -> None:
        """Let a schedule recur, or those of a file: advance() creates the occurrences that fall due."""
        found = read_schedules(schedule) if isinstance(schedule, str | Path) else [schedule]
        for each in found:
            self.client.apply_schedule(each)
            self._recurring[each.metadata.name] = each, self._now_ms()

    def apply_schedules(self) -> None:
        """Let the schedules of @app.schedule recur, as apply_schedule() does."""
        for each in self.app.schedule_documents(self._document.metadata.name):
            self.apply_schedule(each)

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._passed_ms

    def _recur(self, record: ScheduleRecord) -> None:
        """Create the occurrences of a schedule that fell due while time passed, as if that was in the past."""
        schedule, cursor_ms = self._recurring[record.name]
        plan = planned_at_once(schedule, cursor_ms, self._now_ms())
        found = (
            (Occurrence(due.nominal_ms, due.within_ms, alone(schedule)), due.due_ms - self._passed_ms)
            for due in plan.create
        )
        arguments = flat(schedule, found, deadline_ms=self._document.spec.delivery.deadline_ms)
        space = room(self.client.limits, len(self.commands.shards))
        shard = self.commands.shard_of(record.id)
        call = self.commands.create_occurrences(shard, record, arguments, room=space)
        if self._connection.one(call) == "full":
            what = f"{counted(len(plan.create), 'occurrence')} of schedule {record.name}"
            raise AssertionError(f"spec.limits has no room for {what}")
        self._recurring[record.name] = schedule, plan.cursor_ms

    def run_due(self) -> list[Run]:
        """Run every task that is due, in due order, and those that become due meanwhile; return each run.

        Timeouts are not enforced, and crashes not simulated. Not inside an event loop: use run_due_async() there.
        """
        return asyncio.run(self.run_due_async())

    async def run_due_async(self) -> list[Run]:
        """Do the same inside an event loop."""
        async with AsyncExitStack() as stack:
            guard = self._guard
            handler = AppHandler(self.app, self._document, self._address, transactions=guard is not None)
            stack.push_async_callback(handler.close)
            if guard is not None:
                stack.push_async_callback(guard.close)  # which belongs to one event loop
                # Without what is known: the document may name kinds that it routes to another handler.
                handler.under(guard, coverage(self._document.spec.guard, asking=handler.asking, known=None))
            await handler.start()
            connection = AsyncConnection(self._address)
            stack.push_async_callback(connection.close)
            return await self._run_all(connection, handler)

    async def _run_all(self, connection: AsyncConnection, handler: AppHandler) -> list[Run]:
        for keys in self.commands.shards:
            while (await connection.one(self.commands.unpark(keys.shard, handler.kinds)))[0] == BATCH:
                pass
        ending = _Ending(handler.call)
        delivery, counters = self._document.spec.delivery, WorkerCounters("worker", self._document.queue)
        batches = {kind: ending.watching(batch) for kind, batch in handler.batches.items()}
        executor = Executor(ending.call, delivery, counters, handler.kinds, batches=batches)
        runs: list[Run] = []
        while lease := await self._claim(connection):
            now = time.monotonic()
            if (lease.task.kind, lease.task.kind_version) in batches:
                ended = await self._run_batch(connection, executor, lease)
            elif executor.can_run(lease.task):
                ended = [(lease, await executor.run(Running(lease, now, now + LEASE_MS)))]
            else:
                ended = [(lease, Settlement("park", lease))]
            runs += await self._settle(connection, executor, ended, ending)
            if len(runs) > MOST_RUNS:
                raise AssertionError(
                    f"more than {MOST_RUNS:,} runs: do tasks schedule each other without end?"
                )
        return runs

    async def _claim(self, connection: AsyncConnection) -> Lease | None:
        """Claim the task of all shards that is due first. One at a time: a handler may cancel the next one."""
        shards = [keys.shard for keys in self._claims.shards]
        before: list[tuple[int, int, int]] = []
        while True:
            counts = await connection.run([self._claims.counts(shard) for shard in shards])
            due = sorted(
                (each.oldest_due_ms or 0, shard, each.due)
                for each, shard in zip(counts, shards, strict=True)
                if each.due
            )
            if due == before:
                return None
            for _, shard, _ in due:
                claimed = await connection.one(self._claims.claim(shard, 1, LEASE_MS))
                if claimed.leases:
                    return claimed.leases[0]
            before = due  # these claims may have ended late tasks: others may be due

    async def _run_batch(
        self, connection: AsyncConnection, executor: Executor, lease: Lease
    ) -> list[tuple[Lease, Settlement | None]]:
        """Run this task and those of its kind that are due as well in one call, of the size that a worker chooses."""
        key = lease.task.kind, lease.task.kind_version
        batch = executor.batches[key]
        size = executor.size(lease, batch)
        found: list[Lease] = [lease]
        others: list[Lease] = []
        for keys in self._claims.shards:
            claim = self._claims.claim(keys.shard, BATCH, LEASE_MS)
            while len(found) < size and (claimed := (await connection.one(claim)).leases):
                for each in claimed:
                    same = (each.task.kind, each.task.kind_version) == key
                    same = same and executor.size(each, batch) == size
                    (found if same and len(found) < size else others).append(each)
        for each in others:
            back = Settlement("release", each, (each.task.due_ms,))
            await connection.one(settle_call(self.commands, [back], 1))
        call, now = BatchCall(executor.batches[key], size), time.monotonic()
        for each in found:
            call.add(each, now)
        return [(each.lease, settlement) for each, settlement in await executor.run_batch(call)]

    async def _settle(
        self,
        connection: AsyncConnection,
        executor: Executor,
        ended: Sequence[tuple[Lease, Settlement | None]],
        ending: _Ending,
    ) -> list[Run]:
        error, runs = ending.error(), list[Run]()
        for lease, found in ended:
            task = lease.task
            settlement = found if error is None else Settlement("release", lease, (task.due_ms,))
            if settlement is None:
                raise AssertionError(f"task {task.id} ran longer than its lease of {LEASE_MS // 1000} s")
            policy = executor.policy(task)
            [outcome] = await connection.one(settle_call(self._claims, [settlement], policy.max_attempts))
            text = str(settlement.arguments[-1]) if settlement.verb in ("retry", "bury") else ""
            runs.append(Run(task.kind, task.id, task.attempt, outcome, text))
        if error is not None:
            raise error
        return runs

    def scheduled(self, kind: TaskKind[..., Any] | None = None) -> list[ScheduledTask]:
        """Return the tasks that wait, due or not, the earliest due first; of one kind if given."""
        rows = [
            *self.client.list(State.SCHEDULED, limit=BATCH * 40),
            *self.client.list(State.RETRYING, limit=BATCH * 40),
        ]
        found = [(row.at_ms, view) for row in rows if (view := self.client.get(row.id)) is not None]
        return [
            self._waiting(view, at_ms)
            for at_ms, view in sorted(found, key=lambda each: each[0])
            if kind is None or (view.kind, view.kind_version) == (kind.name, kind.version)
        ]

    def assert_scheduled(
        self,
        kind: TaskKind[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> ScheduledTask:
        """Return the one waiting task of this kind with these arguments, among others, and this ID of options().

        AssertionError, with what is scheduled, when there is none or more than one.
        """
        tasks = self.scheduled(kind)
        wanted = dict(arguments or {})
        stored = None if id is None else stored_id(id, kind.name)
        found = [
            each
            for each in tasks
            if stored in (None, each.id) and {**each.arguments, **wanted} == each.arguments
        ]
        if len(found) != 1:
            shown = "\n".join(f"  {each}" for each in tasks) or "  nothing"
            raise AssertionError(
                f"expected one task {kind.name} with {wanted}, found {len(found)}; scheduled:\n{shown}"
            )
        return found[0]

    def _waiting(self, view: TaskView, due_ms: int) -> ScheduledTask:
        return ScheduledTask(
            kind=view.kind,
            id=view.id,
            due=datetime.fromtimestamp(due_ms / 1000, UTC),
            arguments=self._arguments(view),
            attempt=view.failed.failures + view.failed.crashes + 1,
        )

    def _arguments(self, view: TaskView) -> Mapping[str, Any]:
        if view.content_type != JSON_TYPE:
            return {}
        kind = self.app.find(view.kind, view.kind_version)
        if kind is not None:
            with suppress(InvalidArguments):
                return kind.codec.decode(view.body)
        found = json.loads(view.body)
        return found if isinstance(found, dict) else {"": found}


class _Ending:
    """Notices what ends run_due: a cancellation of it, or an exception of a handler that is no Exception."""

    def __init__(self, call: HandlerCall) -> None:
        """`call` is the handler's."""
        self._call, self._cancels = call, _cancels()
        self._error: BaseException | None = None

    async def call(self, task: Task) -> object:
        """Call the handler."""
        with self._noticed():
            return await self._call(task)

    def watching(self, batch: Batch) -> Batch:
        """Return the same batch, whose calls are watched, too."""

        async def call(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
            with self._noticed():
                return await batch.call(tasks)

        return batch._replace(call=call)

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # An error of a thread is the cause of a RuntimeError.
            raised = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
            if not isinstance(raised, (Exception, asyncio.CancelledError)):
                self._error = raised  # such as KeyboardInterrupt, and the outcomes of pytest
            raise

    def error(self) -> BaseException | None:
        """Return what has to be raised instead of the next run."""
        return asyncio.CancelledError() if _cancels() > self._cancels else self._error


def _cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _guard(document: DelayQueue, database: str) -> SqlGuard:
    """Return the guard of a document in another database, with its table."""
    spec = document.spec.guard
    if spec is None or spec.sql is None:
        expected = "a document with spec.guard.sqlUnique, sqlPessimistic or sqlOptimistic"
        raise ValueError(f"database: expected {expected}; this one has none of them")
    made = guards.sql_kind(spec).of(document, None, secrets_dir=Path(), apart=False, url=database)
    made.install_sync()
    made.close_sync()
    return made


def _named(document: DelayQueue | None, name: str) -> DelayQueue:
    """Return a document with another queue name."""
    if document is not None:
        return replace(document, spec=replace(document.spec, queue_name=name))
    return parse(
        {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": name[:50]},
            "spec": {
                "queueName": name,
                "redis": {"standalone": {"host": "redis.invalid"}},
                "worker": {"concurrency": 10_000},  # no bound of batches
                "handler": {"python": {"app": "unused:app"}},
            },
        }
    )

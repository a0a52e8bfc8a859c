"""A queue for one test. Tasks run in the test's process, by the scripts of real workers, when the test says so."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from delayq.app import App
from delayq.client.blocking import SyncClient
from delayq.connection import Address, AsyncConnection, SyncConnection
from delayq.contract import DelayQueue, parse
from delayq.handlers.app import AppHandler
from delayq.protocol.commands import BATCH, Call
from delayq.protocol.envelope import JSON_TYPE
from delayq.protocol.results import Settled, State
from delayq.protocol.scripts import Script
from delayq.service.counters import WorkerCounters
from delayq.worker.claim_loop import settle_call
from delayq.worker.executor import Executor
from delayq.worker.slots import Running, Settlement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from delayq.app import TaskKind
    from delayq.protocol.results import Lease, TaskView

LEASE_MS = 60_000
MOST_RUNS = 10_000
"""Of one run_due: more are taken for tasks that schedule each other without end."""
_ADVANCE = files("delayq") / "testing" / "advance.lua"


class Run(NamedTuple):
    """One run of a task."""

    kind: str
    id: str  # without the kind: as given in options(id=…)
    attempt: int
    outcome: Settled
    error: str  # "" when the task is done


class ScheduledTask(NamedTuple):
    """One task that waits."""

    kind: str
    id: str
    due: datetime
    arguments: Mapping[str, Any]  # as JSON values
    attempt: int  # of its next run


class Queue:
    """The queue of an App. It binds the App, and deletes its tasks when it is closed."""

    def __init__(self, app: App, url: str, document: DelayQueue | None = None) -> None:
        """`url` names the Redis. `document` has limits and retry policy; its name and spec.redis are not used."""
        if not isinstance(app, App):
            raise TypeError(f"expected an App, got {type(app).__name__}")
        self._document = _named(document, f"test-{uuid.uuid4().hex}")
        self.app, self._address = app, Address.from_url(url)
        self._connection = SyncConnection(self._address)
        self.client = SyncClient.from_document(self._document, url=self._address).open()
        self.commands = self.client.commands
        app.bind_document(self._document, url=self._address)

    def close(self) -> None:
        """Delete the tasks. The App is bound to no queue afterwards."""
        self._connection.run([self.commands.erase(keys.shard) for keys in self.commands.shards])
        self._connection.close()
        self.client.close()
        self.app.close()
        self.app.bind_document(None)

    def __enter__(self) -> Self:
        """Return the queue."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def advance(self, **time_passed: float) -> None:
        """Let time pass for the queue: `advance(days=30)`, with the arguments of timedelta. Nothing runs by itself."""
        ms = timedelta(**time_passed) // timedelta(milliseconds=1)
        if ms < 0:
            raise ValueError(f"expected 0 or more, got {time_passed}")
        source = _ADVANCE.read_text()
        keys = ("delayed", "retry", "dlq", "parked", "tasks", "attempts", "followups")
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        script = Script("advance", source, sha, keys, ("ms",), ())
        for shard in self.commands.shards:
            self._connection.one(Call(script, script.bind(shard, ms=ms), int, shard))

    def run_due(self) -> list[Run]:
        """Run every task that is due, in due order, and those that become due meanwhile; return each run.

        Timeouts are not enforced, and crashes not simulated. Not inside an event loop: use run_due_async() there.
        """
        return asyncio.run(self.run_due_async())

    async def run_due_async(self) -> list[Run]:
        """Do the same inside an event loop."""
        handler = AppHandler(self.app, self._document, self._address)
        await handler.start()
        connection = AsyncConnection(self._address)
        executor = Executor(
            handler.call,
            self._document.spec.delivery,
            WorkerCounters("worker", self._document.queue),
            handler.kinds,
        )
        runs: list[Run] = []
        try:
            for keys in self.commands.shards:
                await connection.one(self.commands.unpark(keys.shard, handler.kinds))
            while leases := await self._claim(connection):
                runs += [await self._run(connection, executor, lease) for lease in leases]
                if len(runs) > MOST_RUNS:
                    raise AssertionError(
                        f"more than {MOST_RUNS:,} runs: do tasks schedule each other without end?"
                    )
        finally:
            await connection.close()
            await handler.close()
        return runs

    async def _claim(self, connection: AsyncConnection) -> list[Lease]:
        calls = [self.commands.claim(keys.shard, 1, LEASE_MS) for keys in self.commands.shards]
        return [lease for claimed in await connection.run(calls) for lease in claimed.leases]

    async def _run(self, connection: AsyncConnection, executor: Executor, lease: Lease) -> Run:
        if not executor.knows(lease.task):
            settlement: Settlement | None = Settlement("park", lease)
        else:
            now = time.monotonic()
            settlement = await executor.run(Running(lease, now, now + LEASE_MS))
        if settlement is None:
            raise AssertionError(f"task {lease.task.id} ran longer than its lease of {LEASE_MS // 1000} s")
        policy = executor.policy(lease.task)
        [outcome] = await connection.one(settle_call(self.commands, [settlement], policy.max_attempts))
        error = str(settlement.arguments[-1]) if settlement.verb in ("retry", "bury") else ""
        return Run(
            lease.task.kind, _own_id(lease.task.kind, lease.task.id), lease.task.attempt, outcome, error
        )

    def scheduled(self, kind: TaskKind[..., Any] | None = None) -> list[ScheduledTask]:
        """Return the tasks that wait, due or not, the earliest due first; of one kind if given."""
        rows = [
            *self.client.list(State.SCHEDULED, limit=BATCH * 40),
            *self.client.list(State.RETRYING, limit=BATCH * 40),
        ]
        found = [(row.at_ms, view) for row in rows if (view := self.client.get(row.id)) is not None]
        return [
            _waiting(view, at_ms)
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
        """Return the one waiting task of this kind with these arguments, among others, and this ID.

        AssertionError, with what is scheduled, when there is none or more than one.
        """
        tasks = self.scheduled(kind)
        wanted = json.loads(json.dumps(dict(arguments or {}), default=str))
        found = [
            each for each in tasks if wanted.items() <= dict(each.arguments).items() and id in (None, each.id)
        ]
        if len(found) != 1:
            shown = "\n".join(f"  {each}" for each in tasks) or "  nothing"
            raise AssertionError(
                f"expected one task {kind.name} with {wanted}, found {len(found)}; scheduled:\n{shown}"
            )
        return found[0]


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
                "handler": {"python": {"app": "unused:app"}},
            },
        }
    )


def _own_id(kind: str, task_id: str) -> str:
    return task_id.removeprefix(f"{kind}:")


def _waiting(view: TaskView, due_ms: int) -> ScheduledTask:
    arguments = json.loads(view.body) if view.content_type == JSON_TYPE else {}
    return ScheduledTask(
        kind=view.kind,
        id=_own_id(view.kind, view.id),
        due=datetime.fromtimestamp(due_ms / 1000, UTC),
        arguments=arguments if isinstance(arguments, dict) else {"": arguments},
        attempt=view.failed.failures + view.failed.crashes + 1,
    )

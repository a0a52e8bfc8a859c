"""Applies the DelaySchedules of Kubernetes to the queue: those whose shard this scanner leads.

A watch brings each change at once. Passes over the records bring what a watch cannot: the last runs, deletions while no
scanner ran, definitions that Redis has lost, and schedules of shards that this scanner did not lead before. Not here:
creating occurrences (occurrences.py), status and events (schedule_report.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.contract.document import parse_schedule_spec
from delayq.contract.problems import SpecError
from delayq.errors import NoSuchSchedule, ScheduleRefused, Unavailable
from delayq.kube.reflector import Reflector
from delayq.protocol.alarm import Alarm
from delayq.scanner.schedule_report import DELAY_SCHEDULE, Known, Reported, ScheduleReporter, queue_of
from delayq.scanner.schedule_status import Refusal
from delayq.schedules.record import KUBERNETES, decode, record_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping

    from delayq.client.aio import Client
    from delayq.connection import AsyncConnection
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule
    from delayq.kube.api import PodApi
    from delayq.kube.objects import Kind, Name, Object
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ScheduleRecord

log = logging.getLogger(__name__)

PAGE: Final = 50  # records of a call, and changes of a step
PAGE_SECONDS: Final = 0.5  # between two pages of a pass
PASS_SECONDS: Final = 10.0  # between two passes, unless one takes longer
SYNC_SECONDS: Final = 0.25  # until the next look whether all objects are there
MOST_HELD_BYTES: Final = 16 << 20
"""Of specs that are kept: there may be 10,000 of 64 KiB, which no scanner has the memory for."""
MOST_REFUSED_SECONDS: Final = 300.0  # between two tries of a refused schedule: each doubles the time


class RefusedDefinition(NamedTuple):
    """Why a definition was refused."""

    notes: Mapping[str, object]
    """UID and generation of the object."""
    refusal: Refusal
    written: bool
    """Whether the status says so."""
    sound: bool
    """Whether its times were checked, and Redis refused it."""
    seconds: float
    """How long it waits until the next try."""
    until: float
    """Until when, monotonic seconds."""


class ScheduleWatch:
    """The DelaySchedules of one queue."""

    name, blocks = "schedule_watch", True  # the API server may be away: that makes no scanner unready

    def __init__(
        self,
        queue: DelayQueue,
        client: Client,
        *,
        commands: Commands,
        connection: AsyncConnection,
        led: Callable[[], Collection[int]],
        api: PodApi,
    ) -> None:
        """Send nothing before step(). `client` writes definitions; `led` returns the shards that the scanner leads."""
        self._queue_name, self._client = queue.metadata.name, client
        self._commands, self._connection, self._led = commands, connection, led
        self._objects: dict[str, Known] = {}
        self._held_bytes = 0
        self._changed: dict[str, None] = {}  # names of schedules to apply, in order
        self._deleted: dict[str, str] = {}  # the UID of each of those that is gone
        self._reported: dict[str, Reported] = {}
        self._refused: dict[str, RefusedDefinition] = {}
        self._api, self._reporter = api, ScheduleReporter(api)
        self._reflector = Reflector(api, DELAY_SCHEDULE, self, namespace=api.namespace)
        self._task: asyncio.Task[None] | None = None
        self._pages: AsyncGenerator[None, None] | None = None  # of the pass that is under way
        self._passed: Collection[int] = ()  # the shards of the last pass
        self._pass_began = self._next_page = 0.0  # monotonic seconds
        self.alarm = Alarm()

    # --- The watch.

    async def close(self) -> None:
        """End the watch, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._api.close()
        await self._client.close()

    def seen(self, _kind: Kind, body: Object) -> None:
        """Take an object of the watch. If only its status has changed, which is ours, there is nothing to do."""
        name, before = body["metadata"]["name"], self._objects.get(body["metadata"]["name"])
        if queue_of(body) != self._queue_name:
            self._forget(name)
            return
        known = self._hold(Known.of(body))
        if before is None or before.notes != known.notes:
            self._change(name)
        elif before.written != known.written:
            self._reported.pop(name, None)  # another client has written the status
            if (refused := self._refused.get(name)) is not None:
                self._refused[name] = refused._replace(written=False, until=0.0)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Take a deletion."""
        self._forget(name[1])

    def _hold(self, known: Known) -> Known:
        """Keep an object, with its spec while there is room."""
        self._drop(known.name)
        if self._held_bytes + len(known.spec) > MOST_HELD_BYTES:
            known = known._replace(spec=b"")
        self._held_bytes += len(known.spec)
        self._objects[known.name] = known
        return known

    def _drop(self, name: str) -> Known | None:
        known = self._objects.pop(name, None)
        self._held_bytes -= len(known.spec) if known else 0
        return known

    def _forget(self, name: str) -> None:
        if (known := self._drop(name)) is not None:
            self._change(name, known.uid)

    def _change(self, name: str, uid: str = "") -> None:
        """Note a change, or with `uid` a deletion. Those of other shards are found by the pass of their next leader."""
        self._reported.pop(name, None)
        self._refused.pop(name, None)
        if self._shard(name) in self._led():
            self._changed[name] = None
            if uid:
                self._deleted[name] = uid
            self.alarm.ring()

    # --- The work.

    async def step(self) -> float:
        """Apply some changes, and go through a page of the records; returns the seconds until the next step."""
        if self._task is None or self._task.done():
            await self._client.open()
            self._task = asyncio.create_task(self._reflector.run())
        if not self._reflector.synced.is_set():
            return SYNC_SECONDS
        led, failed = set(self._led()), list[Exception]()
        for name in [*self._changed][:PAGE]:
            del self._changed[name]  # before the call: it may change again meanwhile
            if self._shard(name) not in led:
                self._deleted.pop(name, None)
                continue
            try:
                await self._apply(name)
            except Exception as error:
                self._changed[name] = None
                if isinstance(error, Unavailable):
                    raise
                failed.append(error)  # of one schedule: others must not wait for it
        if not led.issubset(self._passed):
            self._pages, self._next_page = None, 0.0
        if time.monotonic() >= self._next_page:
            await self._go_on(led)
        if failed:
            raise failed[0]
        return 0.0 if self._changed else max(0.0, self._next_page - time.monotonic())

    def _shard(self, name: str) -> int:
        return self._commands.shard_of(record_id(name))

    async def _apply(self, name: str) -> None:
        """Write or delete the definition of a schedule, and say what came of it."""
        known = self._objects.get(name)
        if known is None:
            await self._delete(name)
            return
        try:
            if (spec := await self._reporter.spec(known)) is None:
                return  # the watch brings another one, or the next pass tries again
            schedule = parse_schedule_spec(name, spec)
            notes = {**known.notes, "namespace": self._reporter.namespace}
            before = self._refused_before(known)
            change = await self._client.apply_schedule(
                schedule, owner=KUBERNETES, notes=notes, checked=before is not None and before.sound
            )
        except (SpecError, ScheduleRefused) as error:
            await self._refuse(known, error)
            return
        self._refused.pop(name, None)
        self._keep(known, await self._reporter.applied(known, schedule))
        await self._reporter.changed(name, known.uid, change)

    async def _refuse(self, known: Known, error: SpecError | ScheduleRefused) -> None:
        """Remember why a definition was refused, and report it unless the status says so."""
        before, sound = self._refused_before(known), isinstance(error, ScheduleRefused)
        refusal = Refusal(error.reason if isinstance(error, ScheduleRefused) else "InvalidSpec", str(error))
        written = before is not None and before.written and before.refusal == refusal
        if not written:
            self._keep(known, done := await self._reporter.refused(known, refusal))
            written = done is not None
        seconds = PASS_SECONDS if before is None else min(MOST_REFUSED_SECONDS, 2 * before.seconds)
        until = time.monotonic() + seconds
        self._refused[known.name] = RefusedDefinition(known.notes, refusal, written, sound, seconds, until)

    def _refused_before(self, known: Known) -> RefusedDefinition | None:
        """Return why this generation of an object was refused."""
        found = self._refused.get(known.name)
        return found if found is not None and found.notes == known.notes else None

    async def _delete(self, name: str) -> None:
        uid = self._deleted.get(name, "")
        try:
            change = await self._client.delete_schedule(name, owner=KUBERNETES)
        except ScheduleRefused as error:
            if not isinstance(error, NoSuchSchedule):
                log.info("schedule_not_deleted", extra={"fields": {"schedule": name, "error": str(error)}})
        else:
            await self._reporter.changed(name, uid, change)
        self._deleted.pop(name, None)

    def _keep(self, known: Known, written: Known | None) -> None:
        """Keep an object with its new status, unless the watch has brought another one, or its deletion, meanwhile."""
        if written is not None and self._objects.get(known.name) is known and written.notes == known.notes:
            self._hold(written)

    async def _go_on(self, led: Collection[int]) -> None:
        """Go through one more page; after the last one, a new pass begins in time."""
        if self._pages is None:
            self._passed, self._pass_began, self._pages = led, time.monotonic(), self._pass(led)
        pages, self._pages = self._pages, None  # an error ends this pass
        async for _ in pages:
            self._pages, self._next_page = pages, time.monotonic() + PAGE_SECONDS
            return
        self._next_page = max(self._pass_began + PASS_SECONDS, time.monotonic() + PAGE_SECONDS)

    async def _pass(self, led: Collection[int]) -> AsyncGenerator[None, None]:
        """Compare the records of the shards that this scanner leads with the objects; yields after each full page."""
        found = set[str]()
        for shard in led:
            offset = 0
            while True:
                call = self._commands.list_schedules(shard, offset=offset, limit=PAGE)
                page = await self._connection.one(call)
                for record in page.records:
                    if self._shard(record.name) in led:  # else it migrates
                        found.add(record.name)
                        await self._compare(record, page.now_ms)
                offset += page.entries
                if not page.entries:  # a page is also short if its records are large
                    break
                yield
        for name in self._objects.keys() - found:
            if self._shard(name) in led:
                self._again(name)

    def _again(self, name: str) -> None:
        """Apply a schedule once more, unless its spec is invalid until it is edited, or it was refused lately."""
        known = self._objects.get(name)
        found = None if known is None else self._refused_before(known)
        over = found is not None and found.written and found.refusal.reason == "InvalidSpec"
        if found is None or (not over and time.monotonic() >= found.until):
            self._changed[name] = None

    async def _compare(self, record: ScheduleRecord, now_ms: int) -> None:
        """Apply a schedule again that differs from its record; else report its runs."""
        name, known = record.name, self._objects.get(record.name)
        before, definition = self._reported.get(name), None
        if known is None:
            notes = _notes(record)
            if record.phase != "deleting" and await self._reporter.is_gone(name, notes, self._queue_name):
                self._deleted[name], self._changed[name] = str(notes.get("uid", "")), None
            return
        if record.owner == KUBERNETES:
            if before is not None and before.holds(record, now_ms):
                return
            definition = decode(record)
        if definition is None or not known.is_of(definition.notes):
            if definition is None or not known.is_older_than(definition.notes):
                self._again(name)
            return
        outcome = await self._reporter.ran(known, definition.schedule, record, now_ms)
        if outcome is not None:
            written, self._reported[name] = outcome
            self._keep(known, written)
            if before is not None:
                parked = before.record.missed < record.missed and await self._is_parked(definition.schedule)
                await self._reporter.missed(
                    known, before.record, record, definition.schedule if parked else None
                )

    async def _is_parked(self, schedule: DelaySchedule) -> bool:
        """Whether tasks of its kind are parked, as those of its occurrences are until they are missed."""
        task, shard = schedule.spec.task, self._shard(schedule.metadata.name)
        kind = (task.kind or "", (task.version or 1) if task.kind else 0)
        parked = await self._connection.one(self._commands.parked(shard))
        return any((each.kind, each.version) == kind for each in parked)


def _notes(record: ScheduleRecord) -> Mapping[str, object]:
    """Return what Kubernetes has noted beside the definition; empty if the record is not of Kubernetes."""
    definition = decode(record) if record.owner == KUBERNETES else None
    return {} if definition is None else definition.notes

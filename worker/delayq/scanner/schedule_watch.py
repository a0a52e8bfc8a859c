"""Applies the DelaySchedules of Kubernetes to the queue: those whose shard this scanner leads.

A watch brings each change at once. Passes over the records bring what a watch cannot: the last runs, deletions while no
scanner ran, definitions that Redis has lost, and schedules of shards that this scanner did not lead before. Not here:
creating occurrences (occurrences.py), status and events (schedule_report.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from delayq.contract.document import parse_schedule_spec
from delayq.contract.problems import SpecError
from delayq.errors import NoSuchSchedule, ScheduleRefused, Unavailable
from delayq.kube.api import PodApi, account_directory
from delayq.kube.errors import KubernetesError, NoCluster
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
    from delayq.kube.objects import Kind, Name, Object
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ScheduleRecord

log = logging.getLogger(__name__)

PAGE: Final = 50  # records of a call, and changes of a step
PAGE_SECONDS: Final = 0.5  # between two pages of a pass
PASS_SECONDS: Final = 10.0  # between two passes, unless one takes longer
REST_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 30.0  # until a watch that ended begins again
MOST_REFUSED_SECONDS: Final = (
    300.0  # between two tries of a schedule that Redis refuses: each doubles the time
)


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
    ) -> None:
        """Send nothing before begin(). `client` writes definitions; `led` returns the shards that the scanner leads."""
        self._queue_name, self._client = queue.metadata.name, client
        self._commands, self._connection, self._led = commands, connection, led
        self._objects: dict[str, Known] = {}
        self._changed: dict[str, None] = {}  # names of schedules to apply, in order
        self._deleted: dict[str, str] = {}  # the UID of each of those that is gone
        self._reported: dict[str, Reported] = {}
        self._refused: dict[str, Refusal] = {}
        self._waits: dict[
            str, tuple[float, float]
        ] = {}  # refused by Redis: how long it waits, and until when
        self._sound: dict[
            str, Mapping[str, object]
        ] = {}  # notes of those refused by Redis whose times are right
        self._api: PodApi | None = None
        self._reporter: ScheduleReporter | None = None
        self._reflector: Reflector | None = None
        self._task: asyncio.Task[None] | None = None
        self._no_token = False  # and logged
        self._begin_at = 0.0  # not before, monotonic seconds
        self._pages: AsyncGenerator[None, None] | None = None  # of the pass that is under way
        self._passed: Collection[int] = ()  # the shards of the last pass
        self._pass_began = self._next_page = 0.0  # monotonic seconds
        self.alarm = Alarm()

    # --- The watch.

    async def begin(self) -> None:
        """Watch from now on, unless it does already."""
        if (self._task is not None and not self._task.done()) or time.monotonic() < self._begin_at:
            return
        self._begin_at = time.monotonic() + AGAIN_SECONDS
        if self._api is None:
            try:
                self._api = PodApi.open(account_directory())
            except NoCluster as error:
                if not self._no_token:
                    self._log_unwatched(
                        error, "the operator gives pods of scanners a token: is this one older?"
                    )
                self._no_token = True
                return
        await self._client.open()
        if self._reflector is None:  # else it goes on, and finds what was deleted meanwhile
            self._reporter = ScheduleReporter(self._api)
            self._reflector = Reflector(self._api, DELAY_SCHEDULE, self, namespace=self._api.namespace)
        self._task = asyncio.create_task(self._watch(self._reflector))

    async def _watch(self, reflector: Reflector) -> None:
        waiting = asyncio.create_task(reflector.synced.wait())
        waiting.add_done_callback(lambda _: self.alarm.ring())
        try:
            await reflector.run()
        except KubernetesError as error:  # the next scrape of the operator begins again
            self._log_unwatched(error, "compare the Role of the queue with what the operator writes")
        finally:
            waiting.cancel()

    def _log_unwatched(self, error: KubernetesError, hint: str) -> None:
        log.warning("schedules_not_watched", extra={"fields": {"error": str(error), "hint": hint}})

    async def close(self) -> None:
        """End the watch, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._api is not None:
            await self._api.close()
            await self._client.close()

    def seen(self, _kind: Kind, body: Object) -> None:
        """Take an object of the watch. If only its status has changed, which is ours, there is nothing to do."""
        name, before = body["metadata"]["name"], self._objects.get(body["metadata"]["name"])
        if queue_of(body) != self._queue_name:
            self._forget(name)
            return
        known = self._objects[name] = Known.of(body)
        if before is None or before.notes != known.notes:
            self._change(name)
        elif before.text != known.text:
            self._reported.pop(name, None)  # somebody else has written the status

    def gone(self, _kind: Kind, name: Name) -> None:
        """Take a deletion."""
        self._forget(name[1])

    def _forget(self, name: str) -> None:
        known = self._objects.pop(name, None)
        if known is not None:
            self._change(name, known.uid)

    def _change(self, name: str, uid: str = "") -> None:
        """Note a change, or with `uid` a deletion. Those of other shards are found by the pass of their next leader."""
        self._reported.pop(name, None)
        self._refused.pop(name, None)
        self._waits.pop(name, None)
        self._sound.pop(name, None)
        if self._shard(name) in self._led():
            self._changed[name] = None
            if uid:
                self._deleted[name] = uid
            self.alarm.ring()

    # --- The work.

    async def step(self) -> float:
        """Apply some changes, and go through a page of the records; returns the seconds until the next step."""
        if self._reporter is None or self._reflector is None or not self._reflector.synced.is_set():
            return REST_SECONDS
        if self._task is not None and self._task.done():  # its copy is getting older
            return REST_SECONDS
        reporter, led, failed = self._reporter, set(self._led()), list[Exception]()
        for name in [*self._changed][:PAGE]:
            del self._changed[name]  # before the call: it may change again meanwhile
            if self._shard(name) not in led:
                self._deleted.pop(name, None)
                continue
            try:
                await self._apply(name, reporter)
            except Exception as error:
                self._changed[name] = None
                if isinstance(error, Unavailable):
                    raise
                failed.append(error)  # of one schedule: others must not wait for it
        if not led.issubset(self._passed):
            self._pages, self._next_page = None, 0.0
        if time.monotonic() >= self._next_page:
            await self._go_on(led, reporter)
        if failed:
            raise failed[0]
        return 0.0 if self._changed else max(0.0, self._next_page - time.monotonic())

    def _shard(self, name: str) -> int:
        return self._commands.shard_of(record_id(name))

    async def _apply(self, name: str, reporter: ScheduleReporter) -> None:
        """Write or delete the definition of a schedule, and say what came of it."""
        known = self._objects.get(name)
        if known is None:
            await self._delete(name, reporter)
            return
        try:
            schedule = parse_schedule_spec(name, known.spec)
            notes = {**known.notes, "namespace": reporter.namespace}
            checked = self._sound.get(name) == known.notes
            change = await self._client.apply_schedule(
                schedule, owner=KUBERNETES, notes=notes, checked=checked
            )
        except (SpecError, ScheduleRefused) as error:
            if isinstance(error, ScheduleRefused):
                self._sound[name] = known.notes
            refusal = Refusal("InvalidSpec" if isinstance(error, SpecError) else "Refused", str(error))
            seconds = min(MOST_REFUSED_SECONDS, 2 * self._waits.get(name, (PASS_SECONDS / 2, 0.0))[0])
            self._waits[name] = seconds, time.monotonic() + seconds
            if self._refused.get(name) != refusal:
                self._keep(known, written := await reporter.refused(known, refusal))
                if written is not None:
                    self._refused[name] = refusal
            return
        self._refused.pop(name, None)
        self._waits.pop(name, None)
        self._sound.pop(name, None)
        self._keep(known, await reporter.applied(known, schedule))
        await reporter.changed(name, known.uid, change)

    async def _delete(self, name: str, reporter: ScheduleReporter) -> None:
        uid = self._deleted.get(name, "")
        try:
            change = await self._client.delete_schedule(name, owner=KUBERNETES)
        except ScheduleRefused as error:
            if not isinstance(error, NoSuchSchedule):
                log.info("schedule_not_deleted", extra={"fields": {"schedule": name, "error": str(error)}})
        else:
            await reporter.changed(name, uid, change)
        self._deleted.pop(name, None)

    def _keep(self, known: Known, written: Known | None) -> None:
        """Keep an object with its new status, unless the watch has brought another one, or its deletion, meanwhile."""
        if written is not None and self._objects.get(known.name) is known and written.notes == known.notes:
            self._objects[known.name] = written

    async def _go_on(self, led: Collection[int], reporter: ScheduleReporter) -> None:
        """Go through one more page; after the last one, a new pass begins in time."""
        if self._pages is None:
            self._passed, self._pass_began, self._pages = led, time.monotonic(), self._pass(led, reporter)
        pages, self._pages = self._pages, None  # an error ends this pass
        async for _ in pages:
            self._pages, self._next_page = pages, time.monotonic() + PAGE_SECONDS
            return
        self._next_page = max(self._pass_began + PASS_SECONDS, time.monotonic() + PAGE_SECONDS)

    async def _pass(self, led: Collection[int], reporter: ScheduleReporter) -> AsyncGenerator[None, None]:
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
                        await self._compare(record, page.now_ms, reporter)
                offset += page.entries
                if not page.entries:  # a page is also short if its records are large
                    break
                yield
        for name in self._objects.keys() - found:
            if self._shard(name) in led:
                self._again(name)

    def _again(self, name: str) -> None:
        """Apply a schedule once more, unless its spec is invalid until it is edited, or it was refused lately."""
        refusal, (_, until) = self._refused.get(name), self._waits.get(name, (0.0, 0.0))
        if (refusal is None or refusal.reason != "InvalidSpec") and time.monotonic() >= until:
            self._changed[name] = None

    async def _compare(self, record: ScheduleRecord, now_ms: int, reporter: ScheduleReporter) -> None:
        """Apply a schedule again that differs from its record; else report its runs."""
        name, known = record.name, self._objects.get(record.name)
        before, definition = self._reported.get(name), None
        if known is None:
            notes = _notes(record)
            if record.phase != "deleting" and await reporter.is_gone(name, notes, self._queue_name):
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
        told = await reporter.ran(known, definition.schedule, record, now_ms)
        if told is not None:
            written, self._reported[name] = told
            self._keep(known, written)
            if before is not None:
                parked = before.record.missed < record.missed and await self._is_parked(definition.schedule)
                await reporter.missed(known, before.record, record, definition.schedule if parked else None)

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

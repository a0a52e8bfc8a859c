"""Applies the DelaySchedules of Kubernetes to the queue: those whose shard this scanner leads. Writes their status.

A watch brings each change at once. A pass over the records, every ten seconds or more, brings what a watch cannot: the
last runs, deletions while no scanner ran, and definitions that Redis has lost. Not here: creating occurrences
(occurrences.py), and the text of the status (schedule_status.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.contract.document import parse_schedule
from delayq.contract.problems import SpecError
from delayq.contract.queue import GROUP, VERSION
from delayq.contract.schedule import KIND
from delayq.errors import NoSuchSchedule, ScheduleRefused
from delayq.kube.api import PodApi, account_directory
from delayq.kube.errors import KubernetesError, NoCluster
from delayq.kube.objects import Kind
from delayq.kube.reflector import Reflector
from delayq.protocol.alarm import Alarm
from delayq.scanner.schedule_status import Refusal, next_times, status
from delayq.schedules.record import KUBERNETES, decode, record_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from delayq.client.aio import Client
    from delayq.client.recurring import ScheduleChange
    from delayq.connection import AsyncConnection
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule
    from delayq.kube.objects import Name, Object
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ScheduleRecord

log = logging.getLogger(__name__)

DELAY_SCHEDULE: Final = Kind(f"{GROUP}/{VERSION}", KIND, "delayschedules")
EVENT: Final = Kind("v1", "Event", "events")
MANAGER: Final = "delayq-scanner"
PAGE: Final = 50  # records of a call, and changes of a step
PASS_SECONDS: Final = 10.0
A_SECOND: Final = 100  # records that passes read per second, at most
REST_SECONDS: Final = 3600.0


class Known(NamedTuple):
    """A DelaySchedule as the API server has it."""

    uid: str
    generation: int
    text: bytes
    """Its spec and status, as JSON: Python dicts would take several times the memory."""

    @property
    def notes(self) -> dict[str, object]:
        """What its record notes beside the definition."""
        return {"uid": self.uid, "generation": self.generation}

    @property
    def body(self) -> dict[str, Any]:
        """Its spec and status."""
        found: dict[str, Any] = json.loads(self.text)
        return found


class Told(NamedTuple):
    """What a status was written from: while nothing of it changes, nothing is computed."""

    record: ScheduleRecord
    until_ms: float
    """When the first of the next times is over."""

    def still_true(self, record: ScheduleRecord, now_ms: int) -> bool:
        """Whether the status would be the same: the cursor does not count."""
        seen = replace(record, cursor_ms=self.record.cursor_ms, body=b"")
        return now_ms < self.until_ms and seen == self.record


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
        self._changed: dict[str, None] = {}
        self._deleted: dict[str, str] = {}  # name → UID
        self._told: dict[str, Told] = {}
        self._refused: dict[str, Refusal] = {}
        self._api: PodApi | None = None
        self._reflector: Reflector | None = None
        self._task: asyncio.Task[None] | None = None
        self._unreadable = False  # and logged
        self._pass_at = 0.0  # monotonic seconds
        self._passed: set[int] = set()  # shards that were led in the last pass
        self.alarm = Alarm()

    # --- The watch.

    async def begin(self) -> None:
        """Watch from now on, unless it does already."""
        if self._task is not None and not self._task.done():
            return
        if self._api is None:
            try:
                self._api = PodApi.open(account_directory())
            except NoCluster as error:
                if not self._unreadable:
                    hint = "pods of scanners need automountServiceAccountToken, which the operator sets"
                    log.warning(
                        "schedules_not_watched", extra={"fields": {"error": str(error), "hint": hint}}
                    )
                self._unreadable = True
                return
        await self._client.open()
        self._reflector = Reflector(self._api, DELAY_SCHEDULE, self, namespace=self._api.namespace)
        self._task = asyncio.create_task(self._watch(self._reflector))
        self.alarm.ring()

    async def _watch(self, reflector: Reflector) -> None:
        waiting = asyncio.create_task(reflector.synced.wait())
        waiting.add_done_callback(lambda _: self.alarm.ring())
        try:
            await reflector.run()
        except KubernetesError as error:  # the next scrape of the operator begins again
            hint = "compare the Role of the queue with what the operator writes"
            log.warning("schedules_not_watched", extra={"fields": {"error": str(error), "hint": hint}})
        finally:
            waiting.cancel()

    async def close(self) -> None:
        """End the watch, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._api is not None:
            await self._api.close()
            await self._client.close()

    def seen(self, _kind: Kind, body: Object) -> None:
        """Take an object of the watch. A change of its status only, which is ours, is nothing to do."""
        metadata, spec = body["metadata"], body.get("spec") or {}
        name, before = metadata["name"], self._objects.get(metadata["name"])
        if (spec.get("queueRef") or {}).get("name") != self._queue_name:
            if before is not None:
                self._forget(name)
            return
        text = json.dumps({"spec": spec, "status": body.get("status") or {}}, separators=(",", ":"))
        known = Known(metadata["uid"], metadata["generation"], text.encode())
        self._objects[name] = known
        if before is None or before.notes != known.notes:
            self._change(name)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Take a deletion."""
        if name[1] in self._objects:
            self._forget(name[1])

    def _forget(self, name: str) -> None:
        self._deleted[name] = self._objects.pop(name).uid
        self._change(name)

    def _change(self, name: str) -> None:
        self._changed[name] = None
        self._told.pop(name, None)
        self._refused.pop(name, None)
        self.alarm.ring()

    # --- The work.

    async def step(self) -> float:
        """Apply some changes, or go through the records; returns the seconds until the next step."""
        if self._reflector is None or not self._reflector.synced.is_set():
            return REST_SECONDS
        led = self._led()
        names = [name for name in self._changed if self._shard(name) in led]
        for name in names[:PAGE]:
            del self._changed[name]  # before the call: it may change again meanwhile
            try:
                await self._apply(name)
            except BaseException:
                self._changed[name] = None
                raise
        if names[PAGE:]:
            return 0.0
        if time.monotonic() >= self._pass_at or not self._passed.issuperset(led):
            await self._pass(led)
        pause = self._pass_at - time.monotonic()
        return 0.0 if any(self._shard(name) in led for name in self._changed) else max(0.0, pause)

    def _shard(self, name: str) -> int:
        return self._commands.shard_of(record_id(name))

    async def _apply(self, name: str) -> None:
        """Write or delete the definition of a schedule, and say what came of it."""
        known = self._objects.get(name)
        if known is None:
            await self._delete(name)
            return
        body = known.body
        try:
            schedule = parsed(name, body["spec"])
            change = await self._client.apply_schedule(schedule, owner=KUBERNETES, notes=known.notes)
        except (SpecError, ScheduleRefused) as error:
            await self._refuse(name, known, body, error)
            return
        self._refused.pop(name, None)
        self._deleted.pop(name, None)
        await self._report(name, known, body, schedule=schedule)
        await self._post_change(name, known.uid, change)

    async def _refuse(
        self, name: str, known: Known, body: Mapping[str, Any], error: SpecError | ScheduleRefused
    ) -> None:
        reason = "InvalidSpec" if isinstance(error, SpecError) else "Refused"
        refusal = Refusal(reason, str(error))
        if self._refused.get(name) != refusal and await self._report(name, known, body, refusal=refusal):
            self._refused[name] = refusal
            await self._post(name, known.uid, reason, refusal.message, warning=True)

    async def _delete(self, name: str) -> None:
        try:
            change = await self._client.delete_schedule(name, owner=KUBERNETES)
        except ScheduleRefused as error:
            if not isinstance(error, NoSuchSchedule):
                log.info("schedule_not_deleted", extra={"fields": {"schedule": name, "error": str(error)}})
            return
        await self._post_change(name, self._deleted.pop(name, ""), change)

    async def _pass(self, led: Collection[int]) -> None:
        """Go through the records of the shards that this scanner leads."""
        found, begun = set[str](), time.monotonic()
        for shard in led:
            offset = 0
            while True:
                page = await self._connection.one(
                    self._commands.list_schedules(shard, offset=offset, limit=PAGE)
                )
                for record in page.records:
                    if self._shard(record.name) in led:  # else it migrates
                        found.add(record.name)
                        await self._compare(record, page.now_ms)
                offset += page.entries
                if page.entries < PAGE:
                    break
        for name in [name for name in self._objects if name not in found and self._shard(name) in led]:
            self._again(name)
        self._passed, self._pass_at = set(led), begun + max(PASS_SECONDS, len(found) / A_SECOND)

    def _again(self, name: str) -> None:
        """Apply a schedule once more, unless its spec is invalid until it is edited."""
        refusal = self._refused.get(name)
        if refusal is None or refusal.reason != "InvalidSpec":
            self._changed[name] = None

    async def _compare(self, record: ScheduleRecord, now_ms: int) -> None:
        """Apply a schedule again that differs from its record; else update its status."""
        name, known = record.name, self._objects.get(record.name)
        if known is None:
            if record.owner == KUBERNETES and record.phase != "deleting":
                self._changed[name] = None
            return
        if record.owner != KUBERNETES:
            self._again(name)
            return
        told = self._told.get(name)
        if told is not None and told.still_true(record, now_ms):
            return
        definition = decode(record)
        if definition is None or dict(definition.notes) != known.notes:
            self._again(name)
            return
        await self._report(
            name, known, known.body, schedule=definition.schedule, record=record, now_ms=now_ms
        )
        if told is not None:
            await self._post_missed(name, known.uid, told.record, record)

    # --- What it says.

    async def _report(
        self,
        name: str,
        known: Known,
        body: Mapping[str, Any],
        *,
        schedule: DelaySchedule | None = None,
        record: ScheduleRecord | None = None,
        refusal: Refusal | None = None,
        now_ms: int | None = None,
    ) -> bool:
        """Write the status, if it differs; whether that was done."""
        now_ms = now_ms or time.time_ns() // 1_000_000
        times_ms = [] if schedule is None else next_times(schedule, now_ms)
        previous = body.get("status") or {}
        made = status(
            known.generation,
            previous,
            now_ms,
            schedule=schedule,
            record=record,
            times_ms=times_ms,
            refusal=refusal,
        )
        if {field: previous.get(field) for field in made} != made and not await self._write(
            name, known, made
        ):
            return False
        if record is not None:
            # Without the definition, which is most of it: the version says as much.
            self._told[name] = Told(replace(record, body=b""), times_ms[0] if times_ms else math.inf)
        return True

    async def _write(self, name: str, known: Known, made: dict[str, Any]) -> bool:
        if self._api is None:
            return False
        metadata = {"name": name, "namespace": self._api.namespace, "uid": known.uid}
        body = {"apiVersion": DELAY_SCHEDULE.api_version, "kind": KIND, "metadata": metadata, "status": made}
        try:
            self.seen(DELAY_SCHEDULE, await self._api.apply_status(DELAY_SCHEDULE, body, manager=MANAGER))
        except KubernetesError as error:  # the next pass tries again
            log.info("status_not_written", extra={"fields": {"schedule": name, "error": str(error)}})
            return False
        return True

    async def _post_change(self, name: str, uid: str, change: ScheduleChange) -> None:
        fields = {"schedule": name, "outcome": change.outcome, "removed": change.removed}
        if change.outcome != "unchanged":
            log.info("schedule_applied", extra={"fields": fields})
            message = f"{change.outcome}; removed {change.removed} occurrences that were created ahead"
            await self._post(name, uid, change.outcome.capitalize(), message)

    async def _post_missed(self, name: str, uid: str, before: ScheduleRecord, record: ScheduleRecord) -> None:
        missed, skipped = record.missed - before.missed, record.skipped - before.skipped
        if missed > 0:
            message = f"{missed} occurrences could not start in time, see spec.misfire"
            await self._post(name, uid, "RunsMissed", message, warning=True)
        if skipped > 0:
            message = (
                f"{skipped} occurrences did not start because another one ran, see spec.concurrencyPolicy"
            )
            await self._post(name, uid, "RunsSkipped", message, warning=True)

    async def _post(self, name: str, uid: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Post an event. It may fail: the status says the same."""
        if self._api is None or not uid:
            return
        namespace, now = self._api.namespace, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name[:200]}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": DELAY_SCHEDULE.api_version,
                "kind": KIND,
                "namespace": namespace,
                "name": name,
                "uid": uid,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
        }
        try:
            await self._api.create(EVENT, body)
        except KubernetesError as error:
            log.info("event_not_posted", extra={"fields": {"schedule": name, "error": str(error)}})


def parsed(name: str, spec: object) -> DelaySchedule:
    """Parse the spec of a DelaySchedule; SpecError if it cannot be."""
    return parse_schedule(
        {
            "apiVersion": DELAY_SCHEDULE.api_version,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
    )

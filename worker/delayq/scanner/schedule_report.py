"""Writes the status of DelaySchedules, and posts events. Not here: what a status says (schedule_status.py)."""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.contract.queue import GROUP, VERSION
from delayq.contract.schedule import KIND
from delayq.kube.errors import KubernetesError, NotFound, Unavailable
from delayq.kube.objects import Kind
from delayq.scaling.sentences import counted
from delayq.scanner.schedule_status import next_times, status, unknown_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.client.recurring import ScheduleChange
    from delayq.contract.schedule import DelaySchedule
    from delayq.kube.api import PodApi
    from delayq.kube.objects import Object
    from delayq.protocol.results import ScheduleRecord
    from delayq.scanner.schedule_status import Refusal

log = logging.getLogger(__name__)

DELAY_SCHEDULE: Final = Kind(f"{GROUP}/{VERSION}", KIND, "delayschedules")
EVENT: Final = Kind("v1", "Event", "events")
MANAGER: Final = "delayq-scanner"
AWAY_SECONDS: Final = 5.0  # without requests after one that the API server did not answer


def queue_of(body: Object) -> str:
    """Return the name of the DelayQueue that an object names; empty if it names none."""
    return str(((body.get("spec") or {}).get("queueRef") or {}).get("name", ""))


class Known(NamedTuple):
    """A DelaySchedule as the API server has it."""

    name: str
    uid: str
    generation: int
    suspended: bool
    spec: bytes
    """As JSON: Python dicts would take several times the memory. Empty: ScheduleReporter.spec() asks for it."""
    written: bytes
    """Its status, as JSON."""

    @classmethod
    def of(cls, body: Object) -> Known:
        """Read an object of the API."""
        metadata, spec = body["metadata"], body.get("spec")
        suspended = isinstance(spec, dict) and spec.get("suspend") is True
        spec, status = (
            json.dumps(each, separators=(",", ":")).encode() for each in (spec, body.get("status") or {})
        )
        return cls(metadata["name"], metadata["uid"], metadata["generation"], suspended, spec, status)

    @property
    def notes(self) -> dict[str, object]:
        """What its record notes beside the definition."""
        return {"uid": self.uid, "generation": self.generation}

    def is_of(self, notes: Mapping[str, object]) -> bool:
        """Whether a record has this generation of the object."""
        return {field: notes.get(field) for field in self.notes} == self.notes

    def is_older_than(self, notes: Mapping[str, object]) -> bool:
        """Whether a record has a later one: then this copy is behind, as after a watch that hung."""
        generation = notes.get("generation")
        return notes.get("uid") == self.uid and isinstance(generation, int) and generation > self.generation

    @property
    def status(self) -> dict[str, Any]:
        """Its status; empty without one."""
        found: dict[str, Any] = json.loads(self.written)
        return found

    def new_status(self, now_ms: int, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 -- arguments of status()
        """Return its new status."""
        return status(self.generation, self.status, now_ms, suspended=self.suspended, **facts)


class Reported(NamedTuple):
    """What a status was written from: while nothing of it changes, nothing is computed."""

    record: ScheduleRecord
    until_ms: float
    """When the first of the next times is over."""

    def holds(self, record: ScheduleRecord, now_ms: int) -> bool:
        """Whether the status would be the same. The cursor does not count, nor the body: the version says as much."""
        seen = replace(record, cursor_ms=self.record.cursor_ms, body=b"")
        return now_ms < self.until_ms and seen == self.record


class ScheduleReporter:
    """Tells users about their schedules. What the API server refuses is logged; the next pass tries again."""

    def __init__(self, api: PodApi) -> None:
        """`api` is open."""
        self._api = api
        self._away_until = 0.0  # monotonic seconds: a server that hangs must not hold up a step for long

    @property
    def namespace(self) -> str:
        """The namespace of the scanner and of its schedules."""
        return self._api.namespace

    async def is_gone(self, name: str, notes: Mapping[str, object], queue: str) -> bool:
        """Whether the object of a record does not exist, or names another queue. Asked, as a watch may be behind."""
        if notes.get("namespace") != self.namespace or time.monotonic() < self._away_until:
            return False
        try:
            body = await self._api.get(DELAY_SCHEDULE, self.namespace, name)
        except NotFound:
            return True
        except KubernetesError as error:
            self._failed("status_not_written", name, error)
            return False
        return bool(body["metadata"]["uid"] != notes.get("uid") or queue_of(body) != queue)

    async def spec(self, known: Known) -> Any:  # noqa: ANN401 -- JSON
        """Return the spec of an object, which may be of another version than ours.

        It is asked for if it is not kept: None if it is not to be had now, or has been edited.
        """
        if known.spec:
            return json.loads(known.spec)
        if time.monotonic() < self._away_until:
            return None
        try:
            body = await self._api.get(DELAY_SCHEDULE, self.namespace, known.name)
        except KubernetesError as error:
            self._failed("schedule_not_read", known.name, error)
            return None
        return body.get("spec") if Known.of(body).is_of(known.notes) else None

    async def applied(self, known: Known, schedule: DelaySchedule) -> Known | None:
        """Report that Redis has this definition; returns the object with its status, None if that was not written."""
        now_ms = time.time_ns() // 1_000_000
        times_ms = next_times(schedule, now_ms)
        return await self._write(known, known.new_status(now_ms, schedule=schedule, times_ms=times_ms))

    async def refused(self, known: Known, refusal: Refusal) -> Known | None:
        """Report why a definition is not applied."""
        written = await self._write(known, known.new_status(time.time_ns() // 1_000_000, refusal=refusal))
        if written is not None and written is not known:
            await self.post(known.name, known.uid, refusal.reason, refusal.message, warning=True)
        return written

    async def ran(
        self, known: Known, schedule: DelaySchedule, record: ScheduleRecord, now_ms: int
    ) -> tuple[Known, Reported] | None:
        """Report what the record says of the runs, by Redis' clock."""
        times_ms = next_times(schedule, now_ms)
        made = known.new_status(now_ms, schedule=schedule, record=record, times_ms=times_ms)
        written = await self._write(known, made)
        until_ms = times_ms[0] if times_ms else math.inf
        return written and (written, Reported(replace(record, body=b""), until_ms))

    async def _write(self, known: Known, made: dict[str, Any]) -> Known | None:
        """Write a status, if it differs."""
        previous = known.status
        if {field: previous.get(field) for field in made} == made:
            return known
        if time.monotonic() < self._away_until:
            return None
        metadata = {"name": known.name, "namespace": self._api.namespace, "uid": known.uid}
        body = {"apiVersion": DELAY_SCHEDULE.api_version, "kind": KIND, "metadata": metadata, "status": made}
        try:
            return Known.of(await self._api.apply_status(DELAY_SCHEDULE, body, manager=MANAGER))
        except KubernetesError as error:
            self._failed("status_not_written", known.name, error)
            return None

    def _failed(self, event: str, name: str, error: KubernetesError) -> None:
        log.info(event, extra={"fields": {"schedule": name, "error": str(error)}})
        if isinstance(error, Unavailable):
            self._away_until = time.monotonic() + AWAY_SECONDS

    async def changed(self, name: str, uid: str, change: ScheduleChange) -> None:
        """Post what a write of the definition has done."""
        if change.outcome == "unchanged":
            return
        fields = {"schedule": name, "outcome": change.outcome, "removed": change.removed}
        log.info("schedule_applied", extra={"fields": fields})
        removed = f"; removed {counted(change.removed, 'occurrence')} created ahead" if change.removed else ""
        message = f"{change.outcome}{removed}"
        await self.post(name, uid, change.outcome.capitalize(), message)

    async def missed(
        self, known: Known, before: ScheduleRecord, record: ScheduleRecord, parked: DelaySchedule | None
    ) -> None:
        """Post how many occurrences did not run since the last report; `parked`, if tasks of its kind are."""
        late = "could not start in time, see spec.misfire" if parked is None else unknown_kind(parked)
        for more, reason, why in (
            (record.missed - before.missed, "RunsMissed", late),
            (
                record.skipped - before.skipped,
                "RunsSkipped",
                "did not start because another one ran, see spec.concurrencyPolicy",
            ),
        ):
            if more > 0:
                await self.post(
                    known.name, known.uid, reason, f"{counted(more, 'occurrence')} {why}", warning=True
                )

    async def post(self, name: str, uid: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Post an event."""
        if time.monotonic() < self._away_until:
            return
        namespace, now = self._api.namespace, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body: Object = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
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
            self._failed("event_not_posted", name, error)

"""The status of a DelaySchedule on Kubernetes, from what Redis and the document say. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from delayq.schedules.record import iso
from delayq.schedules.times import Calendar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.results import ScheduleRecord

SHOWN: Final = 5
"""Next times in a status."""
BEHIND_MS: Final = 60_000
BEHIND: Final = (
    "Occurrences are not created in time: most often the queue is full. The log of the scanner says why: "
    "occurrences_refused, schedule_failed or schedule_unreadable."
)
NOT_ACCEPTED: Final = ("InvalidSpec", "NameConflict")
"""Reasons until the spec is edited, or another owner leaves the name; the others pass."""
MOST_CHARACTERS: Final = 1024
"""Of a message."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schedule is not applied."""

    reason: str
    """InvalidSpec, NameConflict, QueueFull, or Behind."""
    message: str


def next_times(schedule: DelaySchedule, now_ms: int) -> list[int]:
    """Return when the next occurrences are due, ms; none while it is suspended."""
    if schedule.spec.suspend:
        return []
    return [each.due_ms for each in islice(Calendar(schedule).after(now_ms), SHOWN)]


def is_behind(schedule: DelaySchedule, record: ScheduleRecord, now_ms: int) -> bool:
    """Whether a time is over that the scanner has not created for a minute, as in a full queue."""
    if schedule.spec.suspend or record.cursor_ms >= now_ms:
        return False
    first = next(Calendar(schedule).after(record.cursor_ms), None)
    return first is not None and first.nominal.at_ms < now_ms - BEHIND_MS


def status(
    generation: int,
    previous: Mapping[str, Any],
    now_ms: int,
    *,
    suspended: bool = False,
    schedule: DelaySchedule | None = None,
    record: ScheduleRecord | None = None,
    times_ms: Sequence[int] = (),
    refusal: Refusal | None = None,
) -> dict[str, Any]:
    """Return the new status. `previous` is that of the object; without a `record`, it tells of the runs."""
    made: dict[str, Any] = {
        "observedGeneration": generation,
        "nextTimes": [iso(each) for each in times_ms],
        "runs": previous.get("runs") or {"missed": 0, "skipped": 0},
    }
    if record is not None:
        made["runs"] = {"missed": record.missed, "skipped": record.skipped}
    last = _last_run(record) or previous.get("lastRun")
    if last:
        made["lastRun"] = last
    if schedule is not None and record is not None and is_behind(schedule, record, now_ms):
        refusal = Refusal("Behind", BEHIND)
    found = (
        _accepted(refusal),
        _ready(refusal, suspended=suspended, over=not times_ms),
        _suspended(suspended),
    )
    made["conditions"] = _dated(found, generation, previous.get("conditions") or (), now_ms)
    return made


def unknown_kind(schedule: DelaySchedule) -> str:
    """Return why occurrences did not start that were parked."""
    task = schedule.spec.task
    kind = f"the kind {task.kind}, version {task.version or 1}" if task.kind else "tasks without a kind"
    return f"could not start in time, as no worker runs {kind}: see spec.task.kind, and the DelayQueue"


def _last_run(record: ScheduleRecord | None) -> dict[str, Any] | None:
    if record is None or record.last_id is None or record.last_began_ms is None:
        return None
    return {
        "nominalTime": record.last_id.rpartition("@")[2],
        "startTime": iso(record.last_began_ms),
        "latenessMilliseconds": max(0, record.last_late_ms or 0),
    }


def _accepted(refusal: Refusal | None) -> tuple[str, str, str, str]:
    if refusal is not None and refusal.reason in NOT_ACCEPTED:
        return "Accepted", "False", refusal.reason, refusal.message
    return "Accepted", "True", "Valid", "The spec is valid, and the queue accepts it."


def _ready(refusal: Refusal | None, *, suspended: bool, over: bool) -> tuple[str, str, str, str]:
    if refusal is not None:
        return "Ready", "False", refusal.reason, refusal.message
    if suspended:
        return "Ready", "True", "Suspended", "It is suspended: there are no occurrences."
    if over:
        return "Ready", "True", "NoFurtherTimes", "It has no further occurrences."
    return "Ready", "True", "Scheduled", "Occurrences are created ahead of time."


def _suspended(suspended: bool) -> tuple[str, str, str, str]:  # noqa: FBT001 -- the whole of it
    if suspended:
        return "Suspended", "True", "SuspendRequested", "spec.suspend is true."
    return "Suspended", "False", "NotSuspended", "spec.suspend is false."


def _dated(
    found: Sequence[tuple[str, str, str, str]],
    generation: int,
    previous: Sequence[Mapping[str, Any]],
    now_ms: int,
) -> list[dict[str, Any]]:
    """Return conditions; one whose status is as before keeps its time."""
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in previous}
    now = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "type": kind,
            "status": state,
            "observedGeneration": generation,
            "lastTransitionTime": since.get((kind, state), now),
            "reason": reason,
            "message": message[:MOST_CHARACTERS],
        }
        for kind, state, reason, message in found
    ]

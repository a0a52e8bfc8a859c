"""What Redis stores of a schedule, and its occurrences as tasks: definitions, IDs and envelopes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.contract import to_document
from delayq.contract.document import parse_schedule
from delayq.contract.problems import SpecError
from delayq.protocol import envelope
from delayq.protocol.commands import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.results import ScheduleRecord
    from delayq.protocol.scripts import Argument

PREFIX: Final = "@"
"""The first character of the IDs of schedules and occurrences; no other task may have it."""
CALL_BYTES: Final = 1 << 20
"""Of the occurrences that one call stores."""
FILE, CLIENT, KUBERNETES = "file", "client", "kubernetes"
"""Owners of schedules: the file of `delayq run`, calls of a client or a command, and DelaySchedules of Kubernetes."""
APP: Final = "app/"
"""The owner of the schedules of an App begins with it; the name of the App follows."""


class Definition(NamedTuple):
    """A schedule, and what its owner notes beside it."""

    schedule: DelaySchedule
    notes: Mapping[str, object]
    """Of Kubernetes: the object's `uid` and `generation`."""


def record_id(name: str) -> str:
    """Return the ID of a schedule's record."""
    return f"{PREFIX}{name}"


def occurrence_id(name: str, nominal_ms: int) -> str:
    """Return the ID of an occurrence, such as @nightly@2026-12-01T02:00:00Z."""
    return f"{PREFIX}{name}{PREFIX}{iso(nominal_ms)}"


def iso(at_ms: int) -> str:
    """Return an instant in UTC, with milliseconds only if it has some."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def encode(definition: Definition) -> bytes:
    """Return the body of the record: an envelope without its due time, the same for the same definition."""
    document = to_document(definition.schedule)
    content = {"document": document, **definition.notes}
    body, _ = envelope.encode(json.loads(json.dumps(content, sort_keys=True)), None, None)
    kind = "suspended" if definition.schedule.spec.suspend else ""  # put_schedule.lua reads it
    return envelope.with_fields(body, envelope.Further(kind, 1))


def decode(record: ScheduleRecord) -> Definition | None:
    """Return the definition of a record; None if this delayq cannot read it, because a newer one wrote it."""
    try:
        content = json.loads(record.body)
        return Definition(parse_schedule(content.pop("document")), content)
    except (ValueError, AttributeError, KeyError, TypeError, SpecError):
        return None


def flat(
    schedule: DelaySchedule,
    occurrences: Iterable[tuple[envelope.Occurrence, int]],
    *,
    deadline_ms: int | None,
) -> list[Argument]:
    """Return occurrences with their due times, ms, as create_occurrences() takes them: ID, due ms and body of each."""
    found: list[Argument] = []
    body, further = _task(schedule, deadline_ms)
    for each, due_ms in occurrences:
        task = envelope.with_fields(body, further._replace(occurrence=each))
        found += occurrence_id(schedule.metadata.name, each.nominal_ms), due_ms, task
    return found


def alone(schedule: DelaySchedule) -> bool:
    """Return whether an occurrence begins only while no other one runs."""
    return schedule.spec.concurrency_policy == "Forbid"


def at_once(schedule: DelaySchedule) -> int:
    """Return how many occurrences one call stores: BATCH, fewer where they are large, at least one."""
    return max(1, min(BATCH, CALL_BYTES // size(schedule)))


def size(schedule: DelaySchedule) -> int:
    """Return the bytes of an occurrence, as limits.maxBytes counts them, or a few more."""
    return (
        len(occurrence_id(schedule.metadata.name, 1)) + len(task_body(schedule, envelope.Occurrence(1))) + 6
    )


def task_body(
    schedule: DelaySchedule, occurrence: envelope.Occurrence, *, deadline_ms: int | None = None
) -> bytes:
    """Return the envelope of an occurrence without its due time. `deadline_ms` is the default of the queue."""
    body, further = _task(schedule, deadline_ms)
    return envelope.with_fields(body, further._replace(occurrence=occurrence))


def _task(schedule: DelaySchedule, deadline_ms: int | None) -> tuple[bytes, envelope.Further]:
    """Return what all occurrences have: their content, encoded once, and their further fields."""
    task = schedule.spec.task
    body, _ = envelope.encode(task.value, None, task.headers)
    kind = ("", 0) if task.kind is None else (task.kind, task.version or 1)
    if task.deadline_seconds is not None:
        deadline_ms = task.deadline_seconds * 1000
    tags = (record_id(schedule.metadata.name), *(task.tags or ()))
    return body, envelope.Further(*kind, deadline_ms, None, tags)

"""JSON and YAML views of results. tools/reference/result_keys.py describes the keys.

Each instant has two keys: `…_ms`, Unix milliseconds by Redis' clock, and the same as ISO 8601.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.formats import iso, length, tasks
from delayq.contract.json_text import strict_json
from delayq.contract.metrics import STATES
from delayq.protocol.envelope import JSON_TYPE, encode_json
from delayq.protocol.results import State
from delayq.schedules.stored import in_words

if TYPE_CHECKING:
    from delayq.client.document import Wrong
    from delayq.client.recurring import ScheduleChange
    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.results import (
        Counts,
        DeadGroup,
        Failures,
        ParkedKind,
        Suspension,
        TaskRow,
        TaskView,
    )
    from delayq.schedules.stored import Schedule
    from delayq.schedules.times import Occurrence

View = dict[str, Any]
HORIZONS_MS: Final = (10_000, 60_000, 300_000, 3_600_000)
INSTANT: Final = {
    State.SCHEDULED: "due",
    State.RETRYING: "due",
    State.SUSPECT: "began",
    State.IN_FLIGHT: "lease_expires",
    State.PARKED: "due",
    State.DEAD: "died",
}


def instant(name: str, ms: int | None) -> View:
    """Return both keys of an instant."""
    return {f"{name}_ms": ms, name: None if ms is None else iso(ms)}


def row(task: TaskRow) -> View:
    """Return one task of a listing."""
    return {
        "id": task.id,
        **_kind(task),
        "state": task.state.value,
        **instant(INSTANT[task.state], task.at_ms),
        "bytes": task.size,
        **failed(task.failed),
    }


def _kind(task: TaskRow | TaskView) -> View:
    return {"kind": task.kind, "kind_version": task.kind_version} if task.kind else {}


def failed(failures: Failures) -> View:
    """Return a task's failures and crashes."""
    return {
        "failures": failures.failures,
        "crashes": failures.crashes,
        "reason": failures.reason,
        "error": error(failures),
    }


def error(failures: Failures) -> str:
    """Return the last error. A task that ended its worker has none, as no process was left to report it."""
    if failures.reason == "crashes" and not failures.error:
        return f"its worker ended in {tasks(failures.crashes, 'run')} (maxCrashes)"
    return failures.error


def whole(task: TaskView) -> View:
    """Return all fields of a task: those that `schedule --many` reads, and its state; what is known if it is done."""
    if task.state is State.DONE:
        times = {**instant("finished", task.at_ms), **instant("scheduled", task.scheduled_ms)}
        found = {"id": task.id, "state": task.state.value, **times}
        return found | {"late_ms": task.late_ms, "attempts": task.attempts}
    return {
        "id": task.id,
        **_kind(task),
        **({"tags": list(task.tags)} if task.tags else {}),
        **content(task),
        "headers": dict(task.headers),
        "state": task.state.value,
        **(instant(INSTANT[task.state], task.at_ms) if task.state in INSTANT else {}),
        **instant("scheduled", task.scheduled_ms),
        **deadline(task),
        **({} if task.token is None else {"token": task.token}),
        **({"cancelling": True} if task.cancelling else {}),
        **({} if task.follow_up_due_ms is None else instant("follow_up", task.follow_up_due_ms)),
        **failed(task.failed),
    }


def deadline(task: TaskView) -> View:
    """Return the deadline after the due time, and the time at which the task expires."""
    if task.deadline_ms is None:
        return {}
    return {"deadline_ms": task.deadline_ms, **instant("expires", task.expires_ms)}


def content(task: TaskView) -> View:
    """Return the payload as JSON if that round-trips to the same bytes, else as base64."""
    if task.content_type == JSON_TYPE:
        try:
            value = strict_json(task.body)
            if encode_json(value).encode() == task.body:
                return {"content_type": task.content_type, "payload": value}
        except (ValueError, RecursionError):
            pass
    return {"content_type": task.content_type, "payload_base64": base64.b64encode(task.body).decode()}


def group(number: int, dead: DeadGroup, text: str) -> View:
    """Return a group of dead letters with the same error; `text`: that error, as `error` returns it."""
    return {
        "group": number,
        **({"kind": dead.kind} if dead.kind else {}),
        "count": dead.count,
        **instant("last_died", dead.last_ms),
        "error": text,
        "ids": list(dead.ids),
    }


def counts(queue: str, found: Counts) -> View:
    """Return the counts of a queue."""
    return {
        "queue": queue,
        **instant("now", found.now_ms),
        **{state: getattr(found, state) for state in STATES},
        "suspect": found.suspect,
        "late_ms": found.late_ms,
        **instant("next_due", found.next_due_ms),
        "due_within": {length(horizon): tasks for horizon, tasks in found.due_within.items()},
        "bytes": found.bytes,
        "stats": dict(found.stats),
    }


def suspension(command: Suspension | None, *, document: bool) -> View:
    """Return what suspends a queue, and since when `delayq suspend` does."""
    return {
        "suspended_by": ["document"] * document + ["command"] * (command is not None),
        **instant("suspended", None if command is None else command.since_ms),
        "suspended_reason": None if command is None else command.reason,
    }


def parked(found: ParkedKind) -> View:
    """Return the parked tasks of one kind and version."""
    return {
        "kind": found.kind,
        "kind_version": found.version,
        "count": found.tasks,
        **instant("oldest_due", found.oldest_due_ms),
    }


def problem(found: Wrong) -> View:
    """Return one problem of a file."""
    return {
        "where": found.where,
        "line": found.line or None,
        "path": found.problem.path,
        "message": found.problem.message,
    }


def occurrence(schedule: str, found: Occurrence, local: str, note: str) -> View:
    """Return one time of a schedule."""
    return {
        "schedule": schedule,
        **instant("nominal", found.nominal.at_ms),
        **instant("due", found.due_ms),
        "local": local,
        "note": note,
    }


def change(schedule: str, done: ScheduleChange) -> View:
    """Return what became of a schedule."""
    return {"schedule": schedule, "outcome": done.outcome, "removed": done.removed}


def recurring(found: Schedule, next_ms: int | None) -> View:
    """Return a schedule of a queue."""
    record = found.record
    return {
        "schedule": record.name,
        "when": found.when,
        "owner": record.owner,
        **instant("next", next_ms),
        "last_id": record.last_id,
        **instant("last_began", record.last_began_ms),
        "last_late_ms": record.last_late_ms,
        "missed": record.missed,
        "skipped": record.skipped,
    }


def upcoming(schedule: DelaySchedule, next_ms: int | None) -> View:
    """Return a schedule of a file or an App."""
    return {"schedule": schedule.metadata.name, "when": in_words(schedule), **instant("next", next_ms)}


def guarded(task_id: str, *, seen: bool | None) -> View:
    """Return a guard's record of a task."""
    return {"id": task_id, "seen": seen}

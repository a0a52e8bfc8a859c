"""Tasks, schedules and counts as the HTTP API returns them: instants as RFC 3339, durations in ms."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from delayq.client.times import iso
from delayq.contract.json_text import strict_json
from delayq.contract.metrics import STATES
from delayq.contract.record import camel
from delayq.protocol.envelope import JSON_TYPE
from delayq.protocol.results import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from delayq.protocol.results import Bulk, Counts, DeadGroup, Failures, Suspension, TaskRow, TaskView
    from delayq.schedules.stored import Schedule

View = dict[str, Any]
HORIZONS: Final = ("10s", "1m", "5m", "1h")
INSTANT: Final = {
    State.SCHEDULED: "due",
    State.RETRYING: "due",
    State.SUSPECT: "began",
    State.IN_FLIGHT: "leaseExpires",
    State.PARKED: "due",
    State.DEAD: "died",
    State.DONE: "finished",
}


def kind(name: str, version: int | None, schemas: list[View]) -> View:
    """Return a kind that workers take, in every version without one."""
    return {"kind": name, **({} if version is None else {"version": version}), "schemas": schemas}


def row(task: TaskRow) -> View:
    """Return one task of a list."""
    return {
        "id": task.id,
        **_kind(task),
        "state": str(task.state),
        INSTANT[task.state]: iso(task.at_ms),
        "bytes": task.size,
        **_failed(task.failed),
    }


def _kind(task: TaskRow | TaskView) -> View:
    return {"kind": task.kind, "version": task.kind_version} if task.kind else {}


def _failed(failed: Failures) -> View:
    found = {
        "failures": failed.failures,
        "crashes": failed.crashes,
        "reason": failed.reason,
        "error": failed.error,
    }
    return {name: value for name, value in found.items() if value}


def task(view: TaskView, *, payload: bool) -> View:
    """Return a task, with its payload and headers if `payload`."""
    found = {
        "id": view.id,
        **_kind(view),
        "state": str(view.state),
        **({INSTANT[view.state]: iso(view.at_ms)} if view.state in INSTANT else {}),
        "scheduled": iso(view.scheduled_ms),
        **({} if view.deadline_ms is None else {"deadlineMs": view.deadline_ms}),
        **({"expires": iso(view.expires_ms)} if view.expires_ms is not None else {}),
        **({"followUpDue": iso(view.follow_up_due_ms)} if view.follow_up_due_ms is not None else {}),
        **({"tags": list(view.tags)} if view.tags else {}),
        **({"cancelling": True} if view.cancelling else {}),
    }
    if view.state is State.DONE:
        return found | {"attempts": view.attempts, "lateMs": view.late_ms}
    return found | _failed(view.failed) | (_content(view) if payload else {})


def _content(view: TaskView) -> View:
    headers: Mapping[str, Any] = {"headers": dict(view.headers)} if view.headers else {}
    if view.content_type == JSON_TYPE:
        try:
            return {"payload": strict_json(view.body), **headers}
        except (ValueError, RecursionError):
            pass
    return {
        "contentType": view.content_type,
        "payloadBase64": base64.b64encode(view.body).decode(),
        **headers,
    }


def bulk(found: Bulk, *, dry_run: bool | None = None) -> View:
    """Return the numbers of an operation on many tasks."""
    numbers = {camel(name): value for name, value in found._asdict().items()}
    return numbers if dry_run is None else {**numbers, "dryRun": dry_run}


def group(found: DeadGroup, key: str) -> View:
    """Return dead letters with one error."""
    kind = {"kind": found.kind} if found.kind else {}
    return {"group": key, **kind, "count": found.count, "lastDied": iso(found.last_ms), "error": found.error}


def counts(queue: str, found: Counts, suspended: View) -> View:
    """Return the counts of a queue."""
    instants = {"oldestDue": found.oldest_due_ms, "nextDue": found.next_due_ms}
    return {
        "queue": queue,
        "now": iso(found.now_ms),
        **{camel(state): getattr(found, state) for state in STATES},
        "suspect": found.suspect,
        "lateMs": found.late_ms,
        **{name: iso(ms) for name, ms in instants.items() if ms is not None},
        "dueWithin": {str(horizon): number for horizon, number in found.due_within.items()},
        "bytes": found.bytes,
        **suspended,
    }


def suspension(command: Suspension | None, *, document: bool) -> View:
    """Return whether the queue is suspended, and by what."""
    by = ["document"] * document + ["command"] * (command is not None)
    since = {} if command is None else {"since": iso(command.since_ms), "reason": command.reason or None}
    return {"suspended": bool(by), "suspendedBy": by, **since}


def schedule(found: Schedule, times: list[datetime]) -> View:
    """Return a recurring schedule."""
    last = found.last_run
    begun = None if last is None else {"id": last.id, "began": iso(round(last.began.timestamp() * 1000))}
    return {
        "name": found.name,
        "when": found.when,
        **({"kind": found.kind} if found.kind else {}),
        "owner": found.owner,
        "suspended": found.suspended,
        "missed": found.missed,
        "skipped": found.skipped,
        **({} if begun is None else {"lastRun": begun}),
        "next": [iso(round(each.timestamp() * 1000)) for each in times],
    }

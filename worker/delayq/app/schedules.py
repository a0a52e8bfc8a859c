"""The options of `@app.schedule`: they become a DelaySchedule document, which the parser of YAML reads. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from delayq.app.arguments import Item
from delayq.client.times import span_ms
from delayq.contract.document import parse_schedule
from delayq.contract.problems import Problem, SpecError
from delayq.contract.queue import GROUP, VERSION
from delayq.contract.schedule import KIND, DelaySchedule, QueueRef
from delayq.durations import Duration
from delayq.errors import InvalidTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.app.kind import TaskKind


class ScheduleOptions(TypedDict, total=False):
    """The further options of App.schedule: fields of a DelaySchedule."""

    headers: Mapping[str, str]
    tags: Sequence[str]
    deadline: Duration
    jitter: Duration
    start_time: datetime
    end_time: datetime
    suspend: bool
    concurrency_policy: Literal["Allow", "Forbid"]
    misfire: Literal["RunOnce", "RunAll", "Skip"]
    max_lateness: Duration
    max_runs: int


FIELDS: Final = {
    "name": "metadata.name",
    "cron": "spec.cron",
    "every": "spec.everySeconds",
    "time_zone": "spec.timeZone",
    "payload": "spec.task.payload",
    "headers": "spec.task.headers",
    "tags": "spec.task.tags",
    "deadline": "spec.task.deadlineSeconds",
    "jitter": "spec.jitterSeconds",
    "start_time": "spec.startTime",
    "end_time": "spec.endTime",
    "suspend": "spec.suspend",
    "concurrency_policy": "spec.concurrencyPolicy",
    "misfire": "spec.misfire.policy",
    "max_lateness": "spec.misfire.maxLatenessSeconds",
    "max_runs": "spec.misfire.maxRuns",
}
"""Where each option is in the document."""
_DURATIONS: Final = ("every", "deadline", "jitter", "max_lateness")
_INSTANTS: Final = ("start_time", "end_time")
_ANY_QUEUE: Final = "queue"
"""Placeholder for the name of the queue, which is known when the App is bound."""


def defined(kind: TaskKind[..., Any], options: Mapping[str, Any]) -> DelaySchedule:
    """Return the schedule of these options; ValueError names the schedule, its kind, and each option that is wrong."""
    given = {name: value for name, value in options.items() if value is not None}
    named = given.setdefault("name", _default_name(kind.name))
    where = f"schedule {named} of task {kind.name}"
    if unknown := [name for name in given if name not in FIELDS]:
        near = get_close_matches(unknown[0], FIELDS, 1)
        expected = f"did you mean {near[0]}?" if near else f"expected {', '.join(FIELDS)}"
        raise TypeError(f"{where}: unknown option {unknown[0]}, {expected}")
    if ("cron" in given) is ("every" in given):
        raise ValueError(f"{where}: expected cron or every, got {'both' if 'cron' in given else 'neither'}")
    try:
        schedule = parse_schedule(_document(kind, given))
        _check_times(schedule)
    except SpecError as error:
        raise ValueError("; ".join(f"{where}: {_named(each)}" for each in error.problems)) from error
    except InvalidTask as error:  # a duration, or the arguments
        raise ValueError(f"{where}: {error}") from error
    return schedule


def for_queue(schedule: DelaySchedule, queue: str) -> DelaySchedule:
    """Return the schedule with the name of its DelayQueue."""
    return replace(schedule, spec=replace(schedule.spec, queue_ref=QueueRef(name=queue)))


def _document(kind: TaskKind[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the document, as YAML would have it."""
    spec: dict[str, Any] = {"queueRef": {"name": _ANY_QUEUE}, "task": {"kind": kind.name}}
    document: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {},
        "spec": spec,
    }
    if kind.version > 1:
        spec["task"]["version"] = kind.version
    if kind.policy.deadline_ms is not None:
        spec["task"]["deadlineSeconds"] = -(-kind.policy.deadline_ms // 1000)
    encoded = _encoded(kind, given.get("payload"))
    for name, value in given.items():
        *path, field = FIELDS[name].split(".")
        section = document
        for each in path:
            section = section.setdefault(each, {})
        section[field] = encoded if name == "payload" else _value(name, value)
    return document


def _encoded(kind: TaskKind[..., Any], payload: Any) -> str:  # noqa: ANN401 -- what the function takes
    """Return the payload as JSON text; InvalidTask if the function does not take it."""
    batch = isinstance(kind.codec, Item)
    if not batch and not _by_name({} if payload is None else payload):
        raise InvalidTask("", f"payload: expected a dict of arguments by name, got {payload!r:.80}")
    args = () if payload is None or not batch else (payload,)
    try:
        return kind.encode(args, {} if batch or payload is None else payload).decode()
    except InvalidTask as error:
        why = str(error).removeprefix(f"task {kind.name}: ")
        raise InvalidTask("", f"payload: expected what the function takes: {why}") from error


def _by_name(payload: object) -> bool:
    return isinstance(payload, Mapping) and all(isinstance(each, str) for each in payload)


def _value(name: str, value: Any) -> Any:  # noqa: ANN401 -- an option
    """Return an option as the document has it: whole seconds, instants as text."""
    if name in _DURATIONS:
        ms = span_ms(value, name)
        if ms % 1000:
            raise InvalidTask("", f"{name}: expected whole seconds, got {value!r:.60}")
        return ms // 1000
    if name in _INSTANTS:
        if getattr(value, "tzinfo", None) is None:
            raise InvalidTask("", f"{name}: expected a datetime with its zone, got {value!r:.60}")
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return list(value) if isinstance(value, tuple) else value


def _default_name(kind: str) -> str:
    """Return the name of a kind as names of DelaySchedules are written: cancel_unpaid -> cancel-unpaid."""
    return re.sub(r"[^a-z0-9.-]+", "-", kind.lower()).strip("-.")


def _check_times(schedule: DelaySchedule) -> None:
    """SpecError for an expression or a zone that cannot be. Without the libraries, apply_schedules() checks them."""
    try:
        from delayq.schedules.times import checked  # noqa: PLC0415 -- a plain client does not have what it imports

        checked(schedule)
    except ModuleNotFoundError:
        return


def _named(problem: Problem) -> str:
    """Return a problem in the words of the options, where the document has paths and other names."""
    path, message = problem.path, problem.message
    for option, there in FIELDS.items():
        path = re.sub(rf"^{re.escape(there)}(?=$|\[)", option, path)
        message = re.sub(rf"\b{there.rpartition('.')[2]}\b", option, message)
    return message if path.startswith("spec") else f"{path}: {message}"  # of several options, or of one

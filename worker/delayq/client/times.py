"""Durations and instants as callers give them, in ms, as Redis has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.contract.problems import quote
from delayq.contract.schedule import read_instant
from delayq.durations import milliseconds
from delayq.errors import InvalidDueTime

if TYPE_CHECKING:
    from delayq.durations import Duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
MAX_MS: Final = 1 << 47
"""The due time must fit an envelope's six bytes: the year 6429."""


class Moment(NamedTuple):
    """A due time: one of both, or neither for now."""

    delay_ms: int | None
    due_ms: int | None


NOW: Final = Moment(None, None)


def moment(delay: Duration | None, due: datetime | None, *, exact: Moment = NOW, task_id: str = "") -> Moment:
    """Return the one that is given, `exact` if it is in ms; InvalidDueTime for more than one, or a malformed one."""
    given = [each for each in (delay, due, *exact) if each is not None]
    if len(given) > 1:
        raise InvalidDueTime(task_id, "expected at most one of delay, due, delay_ms and due_ms, got more")
    if delay is not None:
        return Moment(span_ms(delay, "delay", task_id), None)
    if due is not None:
        return Moment(None, instant_ms(due, "due", task_id))
    return exact


def span_ms(value: Duration, name: str, task_id: str = "", *, signed: bool = False) -> int:
    """Return a duration, rounded up; InvalidDueTime names what was expected. `signed`: it may be negative."""
    try:
        return milliseconds(value, signed=signed)
    except ValueError as error:
        raise InvalidDueTime(task_id, f"{name}: {error}") from None


def instant_ms(value: datetime, name: str, task_id: str = "") -> int:
    """Return an instant in Unix ms, rounded up so that no task starts early; InvalidDueTime without a time zone."""
    if getattr(value, "tzinfo", None) is None:
        raise InvalidDueTime(task_id, f"{name}: expected a datetime with its zone, got {value!r:.60}")
    return max(0, -((_EPOCH - value) // _MS))


def text_instant_ms(text: str) -> int:
    """Parse an ISO 8601 time with its zone. Round up to a millisecond: no task starts early."""
    try:
        at = read_instant(text)
    except (ValueError, OverflowError):
        raise ValueError(f"expected a time like 2026-12-01T09:00:00Z, got {quote(text)}") from None
    if at.tzinfo is None:
        raise ValueError(
            f"expected a time with its zone, like 2026-12-01T09:00:00Z or …+01:00, got {quote(text)}"
        )
    ms = max(0, -((_EPOCH - at) // _MS))
    if ms >= MAX_MS:
        raise ValueError(f"expected a time up to the year 6429, got {quote(text)}")
    return ms


def iso(ms: int) -> str:
    """Format an instant as ISO 8601; one beyond the calendar stays a number."""
    seconds, rest = divmod(ms, 1000)
    try:
        return f"{_second(seconds)}.{rest:03}Z"
    except OverflowError:
        return str(ms)


@lru_cache(1024)  # the tasks of a batch are often due in the same second
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def exact_instant(value: datetime | None, value_ms: int | None, name: str) -> int | None:
    """Return an instant that is given as `name` or as `name`_ms, in Unix ms; InvalidDueTime for both."""
    _check_one(value, value_ms, name)
    return value_ms if value is None else instant_ms(value, name)


def exact_span(
    value: Duration | None, value_ms: int | None, name: str, task_id: str = "", *, signed: bool = False
) -> int | None:
    """Return a duration that is given as `name` or as `name`_ms, in ms; InvalidDueTime for both."""
    _check_one(value, value_ms, name, task_id)
    return value_ms if value is None else span_ms(value, name, task_id, signed=signed)


def _check_one(value: object, value_ms: int | None, name: str, task_id: str = "") -> None:
    if value is not None and value_ms is not None:
        raise InvalidDueTime(task_id, f"expected at most one of {name} and {name}_ms, got both")

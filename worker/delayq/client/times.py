"""Durations and instants as callers write them: "30m", a timedelta, an aware datetime. In ms, as Redis has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from delayq.client.durations import duration_ms
from delayq.errors import InvalidDueTime

Duration = str | timedelta
"""Text such as "30m", or a timedelta. No number: nobody could see whether it means seconds or milliseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


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


def span_ms(value: Duration, name: str, task_id: str = "") -> int:
    """Return a duration, 0 or more, rounded up; InvalidDueTime names what was expected."""
    if isinstance(value, timedelta):
        found = -(-value // _MS)
    elif isinstance(value, str):
        try:
            found = duration_ms(value)
        except ValueError as error:
            raise InvalidDueTime(task_id, f"{name}: {error}") from None
    else:
        hint = f'; did you mean "{value}s"?' if type(value) is int and value >= 0 else ""
        expected = 'a duration like "30m", or a timedelta'
        raise InvalidDueTime(task_id, f"{name}: expected {expected}, got {value!r:.60}{hint}")
    if found < 0:
        raise InvalidDueTime(task_id, f"{name}: expected 0 or more, got {value!r:.60}")
    return found


def instant_ms(value: datetime, name: str, task_id: str = "") -> int:
    """Return an instant in Unix ms, rounded up so that no task starts early; InvalidDueTime without a time zone."""
    if getattr(value, "tzinfo", None) is None:
        raise InvalidDueTime(task_id, f"{name}: expected a datetime with its zone, got {value!r:.60}")
    return max(0, -((_EPOCH - value) // _MS))

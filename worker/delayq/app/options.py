"""How one task is scheduled: when, under which ID, and what happens if the ID exists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from delayq.client.durations import duration_ms
from delayq.errors import InvalidDueTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.client.enqueue import IfExists

Duration = str | timedelta | int
"""Like "30m", or whole seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Options(NamedTuple):
    """The options of one task. A delay is "30m", a timedelta or whole seconds; `due` is a time with its zone."""

    delay: Duration | None = None
    due: datetime | None = None
    id: str | None = None
    if_exists: IfExists = "reject"
    headers: Mapping[str, str] | None = None
    deadline: Duration | None = None  # after the due time
    debounce: Duration | None = None  # how far the due time may move, from the first call
    tags: Sequence[str] | None = None

    def moment(self) -> tuple[int | None, int | None]:
        """Return delay ms and due ms, one of them None; InvalidDueTime when they are malformed."""
        if self.due is None:
            return milliseconds(0 if self.delay is None else self.delay, "delay"), None
        if self.delay is not None:
            raise InvalidDueTime(self.id or "", "expected one of delay and due, got both")
        if getattr(self.due, "tzinfo", None) is None:
            raise InvalidDueTime(
                self.id or "", f"due: expected a datetime with its zone, got {self.due!r:.60}"
            )
        return None, max(0, -((_EPOCH - self.due) // _MS))  # rounded up: no task starts early


def milliseconds(value: Duration, name: str) -> int:
    """Return a duration in ms, rounded up; InvalidDueTime names what was expected."""
    if isinstance(value, timedelta):
        found = -(-value // _MS)
    elif isinstance(value, str):
        try:
            found = duration_ms(value)
        except ValueError as error:
            raise InvalidDueTime("", f"{name}: {error}") from None
    elif type(value) is int:
        found = value * 1000
    else:
        expected = 'a duration like "30m", a timedelta or whole seconds'
        raise InvalidDueTime("", f"{name}: expected {expected}, got {value!r:.60}")
    if found < 0:
        raise InvalidDueTime("", f"{name}: expected 0 or more, got {value!r:.60}")
    return found

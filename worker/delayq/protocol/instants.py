"""Instants as Python has them. Redis and the envelope have Unix milliseconds; names that end in `_ms` are those."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, overload

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def instant(ms: int) -> datetime: ...
@overload
def instant(ms: int | None) -> datetime | None: ...
def instant(ms: int | None) -> datetime | None:
    """Return Unix milliseconds as a datetime in UTC, exactly; None stays None."""
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)

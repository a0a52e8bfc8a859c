"""Durations as people write them: 250ms, 10s, 1h30m, or a timedelta."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

Duration = str | timedelta
"""Text such as "30m", or a timedelta. No number: nobody could see whether it means seconds or milliseconds."""

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PIECES = re.compile(
    "".join(
        rf"(?:(?P<{unit}>[0-9]{{1,15}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in ("d", "h", "m", "s", "ms")
    )
)
_MS: Final = timedelta(milliseconds=1)


@lru_cache(1024)  # tasks of one batch often have the same
def duration_ms(text: str) -> int:
    """Parse 250ms, 10s, 30m, 2h, 1d or 1h30m; ValueError names the expected format."""
    found = _PIECES.fullmatch(text)
    if not found or not text:
        hint = f", did you mean {text}s or {text}ms?" if text.isascii() and text.isdigit() else ""
        raise ValueError(
            f"expected a duration like 250ms, 10s, 30m, 2h, 1d or 1h30m, got {json.dumps(text[:60])}{hint}"
        )
    return round(sum(float(count) * UNITS_MS[unit] for unit, count in found.groupdict("0").items()))


def milliseconds(value: Duration, *, signed: bool = False) -> int:
    """Return a duration in ms, rounded up; ValueError if it is none, or negative and not `signed`.

    With `signed`, text may begin with a minus: "-1h".
    """
    if isinstance(value, timedelta):
        found = -(-value // _MS)
    elif isinstance(value, str):
        negative = signed and value.startswith("-")
        found = duration_ms(value.removeprefix("-") if negative else value) * (-1 if negative else 1)
    else:
        hint = f'; did you mean "{value}s"?' if type(value) is int and value >= 0 else ""
        raise ValueError(f'expected a duration like "30m", or a timedelta, got {value!r:.60}{hint}')  # noqa: TRY004 -- as for other durations
    if found < 0 and not signed:
        raise ValueError(f"expected 0 or more, got {value!r:.60}")
    return found

"""Durations as people write them: 250ms, 10s, 1h30m."""

from __future__ import annotations

import re
from typing import Final

from delayq.contract.problems import quote

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PIECES = re.compile(
    "".join(
        rf"(?:(?P<{unit}>[0-9]{{1,15}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in ("d", "h", "m", "s", "ms")
    )
)


def duration_ms(text: str) -> int:
    """Parse 250ms, 10s, 30m, 2h, 1d or 1h30m; ValueError names the expected format."""
    found = _PIECES.fullmatch(text)
    if not found or not text:
        hint = f", did you mean {text}s or {text}ms?" if text.isascii() and text.isdigit() else ""
        raise ValueError(
            f"expected a duration like 250ms, 10s, 30m, 2h, 1d or 1h30m, got {quote(text)}{hint}"
        )
    return round(sum(float(count) * UNITS_MS[unit] for unit, count in found.groupdict("0").items()))

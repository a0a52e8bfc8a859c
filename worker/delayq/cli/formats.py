"""Parse durations, instants and rates of the command line, and format them for output."""

from __future__ import annotations

import re
from typing import Final

from delayq.client.times import iso, text_instant_ms
from delayq.contract.problems import quote
from delayq.durations import UNITS_MS
from delayq.service.terminal import safe

_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)/([smh])")

instant_ms: Final = text_instant_ms
__all__ = ["clean", "instant_ms", "iso", "length", "rate_per_second", "relative", "seconds", "tasks"]


def rate_per_second(text: str) -> float:
    """Parse 50/s, 100/m or 1000/h."""
    found = _RATE.fullmatch(text)
    rate = float(found[1]) * 1000 / UNITS_MS[found[2]] if found else 0.0
    if not rate > 0:
        raise ValueError(f"expected a rate above 0 like 50/s, 100/m or 1000/h, got {quote(text)}")
    return rate


def length(ms: float) -> str:
    """Format a rounded duration: 450ms, 3s, 1m, 90s, 30m, 4h, 9d. Use a unit for exactly one, and from two on."""
    if ms < UNITS_MS["s"]:
        return f"{round(ms)}ms"
    unit = next((unit for unit in ("d", "h", "m") if _is_usable(round(ms / UNITS_MS[unit], 2))), "s")
    return f"{round(ms / UNITS_MS[unit]):,}{unit}"


def _is_usable(count: float) -> bool:
    return count == 1 or count >= 2  # noqa: PLR2004 -- see length()


def relative(at_ms: int, now_ms: int) -> str:
    """Format an instant relative to now: in 3m, 2m ago."""
    if at_ms == now_ms:
        return "now"
    return f"in {length(at_ms - now_ms)}" if at_ms > now_ms else f"{length(now_ms - at_ms)} ago"


def seconds(spread: float) -> str:
    """Format a duration from now: in about 4 s."""
    return "at once" if spread == 0 else "in under 1 s" if spread < 1 else f"in about {round(spread):,} s"


def tasks(count: int, noun: str = "task") -> str:
    """Format a count: 1 task, 212 tasks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clean(text: str) -> str:
    """Return the text on one line, without control characters: errors quote text of other programs."""
    return safe(text).replace("\n", " ").replace("\t", " ")

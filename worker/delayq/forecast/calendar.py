"""Split a time into spans of wall-clock hours and days, and label them. Pure.

A zone of None is that of this machine.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import tzinfo

MOST_SPANS: Final = 25
"""24 hours from the middle of an hour make 25 spans."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS
LONGEST_MS: Final = 366 * DAY_MS
"""How far a forecast looks ahead, at most."""
STEPS_MS: Final = (
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 4, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 4, 7, 14, 16)),
)


def spans(now_ms: int, within_ms: int, zone: tzinfo | None) -> list[tuple[int, int]]:
    """Return spans from now, with edges at round wall-clock times, except for the first start and the last end."""
    step = next((step for step in STEPS_MS if within_ms <= step * (MOST_SPANS - 1)), STEPS_MS[-1])
    end, edges, number = now_ms + within_ms, [now_ms], 1
    while (edge := _edge(now_ms, step, number, zone)) < end:
        if edge > edges[-1]:
            edges.append(edge)
        number += 1
    return list(zip(edges, [*edges[1:], end], strict=True))


def _edge(now_ms: int, step: int, number: int, zone: tzinfo | None) -> int:
    """Return the nth round time after now. At a clock change, hours keep their length and days follow the clock."""
    wall = _local(now_ms, zone).replace(tzinfo=None)
    midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    since = (wall - midnight) // timedelta(milliseconds=1)
    if step <= HOUR_MS:
        return now_ms - since % step + number * step
    round_time = midnight + timedelta(milliseconds=since // step * step + number * step)
    return round(round_time.replace(tzinfo=zone).timestamp() * 1000)


def label(at_ms: int, now_ms: int, within_ms: int, zone: tzinfo | None) -> str:
    """Format a time without redundant parts: 02:00, 02:00:05, Tue 02:00, 2026-07-14 02:00, 02:00 UTC+01:00."""
    at, now, last = (_local(ms, zone) for ms in (at_ms, now_ms, now_ms + within_ms - 1))
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    if within_ms > WEEK_MS:
        shown = f"{at:%Y-%m-%d} {clock}"
    else:
        shown = f"{at:%a} {clock}" if last.date() > now.date() else clock
    return shown if at.utcoffset() == now.utcoffset() else f"{shown} {offset(at_ms, zone)}"


def offset(at_ms: int, zone: tzinfo | None) -> str:
    """Format the offset from UTC: UTC, UTC+05:30."""
    minutes = round((_local(at_ms, zone).utcoffset() or timedelta()).total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"


def _local(at_ms: int, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)

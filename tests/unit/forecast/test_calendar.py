"""Where hours and days begin, in zones of all kinds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from delayq.forecast import label, offset, spans
from hypothesis import given
from hypothesis import strategies as some

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
KOLKATA = timezone(timedelta(hours=5, minutes=30))
PARIS = ZoneInfo("Europe/Paris")
ZONES = some.sampled_from(
    [UTC, KOLKATA, PARIS, ZoneInfo("America/St_Johns"), ZoneInfo("Australia/Lord_Howe"), None]
)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def starts(now: str, within_ms: int, zone: timezone | ZoneInfo) -> list[str]:
    now_ms = ms(now)
    return [label(start, now_ms, within_ms, zone) for start, _ in spans(now_ms, within_ms, zone)]


@pytest.mark.parametrize(
    ("now", "within_ms", "zone", "labels"),
    [
        ("2026-07-14T14:20:00Z", 3 * HOUR, KOLKATA, ["19:50", "20:00", "20:10"]),
        ("2026-07-14T14:20:30Z", 22 * HOUR, KOLKATA, ["Tue 19:50:30", "Tue 20:00", "Tue 21:00"]),
        (
            "2026-07-14T22:20:00Z",
            20 * DAY,
            PARIS,
            ["2026-07-15 00:20", "2026-07-16 00:00", "2026-07-17 00:00"],
        ),
    ],
)
def test_spans_begin_at_round_times_of_the_clock_on_the_wall(
    now: str, within_ms: int, zone: timezone, labels: list[str]
) -> None:
    assert starts(now, within_ms, zone)[:3] == labels


def test_an_hour_that_comes_twice_is_two_hours() -> None:
    """In Paris, 2026-10-25, clocks go from 03:00 back to 02:00."""
    found = spans(ms("2026-10-25T01:00:00+02:00"), 6 * HOUR, PARIS)
    assert {end - start for start, end in found} == {15 * MINUTE}
    assert starts("2026-10-25T00:30:00+02:00", 22 * HOUR, PARIS)[:5] == [
        "00:30",
        "01:00",
        "02:00",
        "02:00 UTC+01:00",
        "03:00 UTC+01:00",
    ]


def test_days_begin_at_midnight_though_one_has_23_hours() -> None:
    """In Paris, 2026-03-29, 02:00 to 03:00 does not exist."""
    found = spans(ms("2026-03-28T00:00:00+01:00"), 10 * DAY, PARIS)
    at = [datetime.fromtimestamp(start / 1000, PARIS) for start, _ in found]
    assert {(each.hour, each.minute) for each in at} == {(0, 0), (12, 0)}


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        (UTC, "UTC"),
        (KOLKATA, "UTC+05:30"),
        (timezone(timedelta(hours=-3, minutes=-30)), "UTC-03:30"),
        (PARIS, "UTC+02:00"),
    ],
)
def test_an_offset_is_written_as_people_know_it(zone: timezone, said: str) -> None:
    assert offset(ms("2026-07-14T12:00:00Z"), zone) == said


@given(some.integers(0, 4_000_000_000_000), some.integers(1, 366 * DAY), ZONES)
def test_spans_follow_each_other_from_now_to_the_end_and_are_few(
    now: int, within: int, zone: timezone | None
) -> None:
    found = spans(now, within, zone)
    assert (found[0][0], found[-1][1]) == (now, now + within)
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert all(start < end for start, end in found)
    assert len(found) <= 27

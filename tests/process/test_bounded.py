"""Nothing in Redis grows but by the tasks that are there: half an hour of work, at clocks that run sixty times as fast.

`make soak` plays a day, and looks at the memory of the processes, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.soak.day import SPEC, STOCK, Day, held
from benchmarks.soak.fast_clock import Pace, fast_server
from tests.process.fleet import Fleet, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FACTOR, PER_MINUTE = 60, 300
FIRST_MINUTES, MINUTES = 6, 20
# Hints, leadership and the claims' rate come and go; each is a few bytes in every case.
PASSING = {"wake", "alarm", "leader", "scanners", "rate"}
MOST_OF_PASSING = 1000
# What waits at rest is the same to a few bytes; a table may double.
SLACK, SLACK_BYTES = 1.3, 256


@pytest.fixture
def fast(flavour: str, tmp_path: Path, queue_name: str) -> Iterator[tuple[Fleet, Pace]]:
    pace = Pace(FACTOR)
    server = fast_server(flavour, tmp_path / "redis", pace)
    spec = SPEC | {"redis": {**SPEC["redis"], "standalone": {"host": "127.0.0.1", "port": server.port}}}
    fleet = Fleet(server, tmp_path, queue_name, spec, pace.environment())
    try:
        yield fleet, pace
    finally:
        fleet.kill_all()
        server.kill()


def play(day: Day, pace: Pace, minutes: int) -> dict[str, int]:
    """Minute by minute as time passes, then to rest; returns what each key takes by then."""
    began = pace.passed()
    for minute in range(minutes):
        until(lambda: pace.passed() >= began + minute * 60, f"minute {minute}")  # noqa: B023  called at once
        day.minute()
    day.rest()
    with day.fleet.server.client() as redis:
        day.fleet.snapshot(redis).check()
        sizes = held(redis)
    for name in PASSING:
        assert sizes.pop(name, 0) < MOST_OF_PASSING
    return sizes


@pytest.mark.full
def test_no_key_grows_with_time_or_with_what_was_done(fast: tuple[Fleet, Pace]) -> None:
    fleet, pace = fast
    fleet.start_all("scanner", "worker", "reaper")
    with fleet.client() as client:
        day = Day(fleet, client, PER_MINUTE)
        day.stock()
        # As much at once as there can be later, should the machine stand still so that work piles up.
        day.rush(PER_MINUTE * MINUTES)
        before = play(day, pace, FIRST_MINUTES)
        after = play(day, pace, MINUTES)
        stats = client.counts().stats
    print(f"{before=}\n{after=}\n{stats=}")
    assert day.scheduled == PER_MINUTE * (FIRST_MINUTES + 2 * MINUTES)
    # All of it happened, or the sizes would say nothing.
    assert stats["scheduled"] == day.scheduled + STOCK
    for verb in ("acked", "retried", "buried", "cancelled", "rescheduled", "reclaimed", "redriven", "purged"):
        assert stats.get(verb), verb
    assert set(after) <= set(before), "a key that was not there after the same work"
    assert {key: size for key, size in after.items() if size > before[key] * SLACK + SLACK_BYTES} == {}

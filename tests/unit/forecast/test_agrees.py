"""A forecast against a simulation of the same tasks, one by one: the two were not made from each other."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from delayq.forecast import ROUNDS, Expected, Histogram, Now, Supply, outlook
from hypothesis import example, given
from hypothesis import strategies as some

from benchmarks.simulation import Arrival, Plant, Tasks

HOUR, HOUR_MS = 3600.0, 3_600_000
SPANS = [(hour * HOUR_MS, (hour + 1) * HOUR_MS) for hour in range(3)]


class Some(NamedTuple):
    """Tasks that fall due from a time on, evenly or at once."""

    start_ms: int
    seconds: int
    tasks: int

    @property
    def due_ms(self) -> list[int]:
        return [self.start_ms + number * self.seconds * 1000 // self.tasks for number in range(self.tasks)]


def forecast(due_ms: list[int], supply: Supply) -> list[Expected]:
    """From counts, as Redis would give them."""
    histogram = Histogram(SPANS, few=supply.slots, short_ms=supply.short_ms)
    for _ in range(ROUNDS):
        histogram.add({at: sum(due <= at for due in due_ms) for at in histogram.next_instants()})
    return outlook(histogram.bins, SPANS, Now(0), supply)


def latest(due_ms: list[int], workers: int, supply: Supply) -> float:
    """How late a task really begins at the most, with so many workers from the start."""
    tasks = Tasks.of(Arrival(due=at / 1000, handler_seconds=supply.handler_seconds) for at in due_ms)
    plant = Plant(tasks, slots=supply.slots, lead_seconds=0.0, replicas=workers)
    plant.advance(1e6)
    assert plant.finished == len(tasks)
    return max(began - due for began, due in zip(plant.began, tasks.due, strict=True))


LOADS = some.lists(
    some.builds(
        Some,
        some.integers(0, 3 * HOUR_MS - 700_000),
        some.one_of(some.just(0), some.integers(1, 600)),
        some.integers(1, 1500),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: sorted(at for each in found for at in each.due_ms))
SUPPLIES = some.builds(
    Supply,
    slots=some.integers(1, 50),
    handler_seconds=some.floats(0.1, 20),
    lateness_seconds=some.integers(1, 60).map(float),
    workers=some.integers(1, 20),
    lead_seconds=some.just(0.0),
)


@given(LOADS, SUPPLIES)
def test_lateness_is_what_it_comes_to_but_for_a_handler_or_two(due_ms: list[int], supply: Supply) -> None:
    reported = max(each.late_seconds for each in forecast(due_ms, supply))
    real = latest(due_ms, supply.workers, supply)
    assert reported == pytest.approx(real, abs=3 * supply.handler_seconds + supply.short_ms / 1000, rel=0.1)


# The forecast sees the first of these groups up to `short_ms` too early, and the second one in time.
@example(
    [404] * 448 + [1204] * 465,
    Supply(slots=1, handler_seconds=0.1, lateness_seconds=1.0, workers=1, lead_seconds=0.0),
)
@given(LOADS, SUPPLIES)
def test_as_many_workers_as_are_forecast_begin_everything_in_time(due_ms: list[int], supply: Supply) -> None:
    """But for one handler, and for the time within which due times count as simultaneous."""
    needed = max(each.workers for each in forecast(due_ms, supply))
    allowed = supply.lateness_seconds + supply.handler_seconds + supply.short_ms / 1000
    assert latest(due_ms, needed, supply) <= allowed

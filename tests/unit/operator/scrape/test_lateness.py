"""How many tasks started late is what the histograms of workers count, from one scrape to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delayq_operator.scrape.lateness import Lateness, StartedTasks, counted

from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample

W = replace(POD, name="w", component="worker", created_at=999_980.0)


def began(in_time: float, *, late: float = 0.0, at: float = 1.0) -> list[Sample]:
    """A histogram with a bound at the objective of one second, and one above."""
    name = "delayq_worker_due_to_claimed_seconds_bucket"
    counts = {"0.5": in_time, str(at): in_time, "5.0": in_time + late, "+Inf": in_time + late}
    return [(name, {"queue": "orders", "le": le}, count) for le, count in counts.items()]


def test_what_a_histogram_counts_between_two_bounds_is_in_proportion_and_one_that_is_none_counts_nothing() -> (
    None
):
    """Of eight between 1 and 5 s, half are taken to be later than 3 s."""
    for labels, count in (({}, 5.0), ({"le": "+Inf"}, float("nan")), ({"le": "x"}, 1e300)):
        assert counted([("delayq_worker_due_to_claimed_seconds_bucket", labels, count)], 1.0) is None
    assert counted(began(10, late=8), 1.0) == StartedTasks(18, 8)
    assert counted(began(10, late=8), 3.0) == StartedTasks(18, 4)
    assert counted(began(10, late=8), 5.0) == counted(began(10, late=8), 86_400) == StartedTasks(18, 0)
    watch = Lateness(1.0, since=0.0)
    watch.take(W, began(10, late=2), 1_000_000.0)
    watch.take(W, began(3, late=1), 1_000_010.0)
    assert watch.seen(1_000_010.0) == StartedTasks(16, 3), "a container that started anew counts from zero"

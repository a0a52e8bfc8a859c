"""Where tasks fall due: found with few questions, and nothing is lost."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from delayq.forecast import ROUNDS, Bin, Histogram
from hypothesis import given
from hypothesis import strategies as some

HOUR = 3_600_000
HOURS = [(hour * HOUR, (hour + 1) * HOUR) for hour in range(24)]


def looked_at(
    due_ms: list[int], spans: list[tuple[int, int]], *, few: int = 10, short_ms: int = 250
) -> list[Bin]:
    """What is known in the end; each question is answered as Redis would."""
    due = sorted(at for at in due_ms if at >= spans[0][0])
    histogram = Histogram(spans, few=few, short_ms=short_ms)
    for _ in range(ROUNDS):
        asked = histogram.next_instants()
        assert len(asked) <= 128
        histogram.add({at: bisect_right(due, at) for at in asked})
    return histogram.bins


def test_a_rush_on_the_hour_is_found_with_the_first_question() -> None:
    histogram = Histogram(HOURS, few=10, short_ms=250)
    histogram.add({at: 5000 * (at >= 2 * HOUR) for at in histogram.next_instants()})
    assert [each for each in histogram.bins if each.tasks] == [Bin(2 * HOUR, 2 * HOUR + 250, 5000)]
    assert histogram.next_instants() == []


def test_a_task_that_leaves_meanwhile_takes_no_other_along() -> None:
    histogram = Histogram([(0, 1000), (1000, 2000)], few=1, short_ms=1000)
    histogram.add({-1: 9, 999: 7, 1999: 12})
    assert [each.tasks for each in histogram.bins] == [0, 5]


SPANS = some.lists(some.integers(0, 5 * HOUR), min_size=2, max_size=27, unique=True).map(sorted)


@given(
    SPANS, some.lists(some.integers(0, 5 * HOUR), max_size=300), some.integers(0, 20), some.integers(1, 5000)
)
def test_every_task_is_in_the_stretch_in_which_it_falls_due(
    edges: list[int], due: list[int], few: int, short_ms: int
) -> None:
    spans = list(pairwise(edges))
    found = looked_at(due, spans, few=few, short_ms=short_ms)
    assert (found[0].start_ms, found[-1].end_ms) == (edges[0], edges[-1])
    assert all(one.end_ms == other.start_ms for one, other in pairwise(found))
    for each in found:
        assert each.tasks == sum(each.start_ms <= at < each.end_ms for at in due)
        assert any(start <= each.start_ms and each.end_ms <= end for start, end in spans)

"""What is asked for, and how it is cut into stretches."""

from __future__ import annotations

import pytest
from delayq.scaling import Sample, horizons
from delayq.scaling.load import load


@pytest.mark.parametrize("window", [4.0, 15.0, 44.0, 604.0, 90_000.0])
def test_horizons_grow_reach_the_outlook_and_are_few_enough_to_ask_for(window: float) -> None:
    asked = horizons(window)
    assert list(asked) == sorted(set(asked))
    assert asked[-1] >= max(3600.0, window * 0.999)
    assert len(asked) <= 128
    assert all(float(f"{each:g}") == each for each in asked)


def test_stretches_hold_what_falls_due_in_them() -> None:
    look = Sample(due_within=((1.0, 5), (2.0, 5), (4.0, 9)))
    assert list(look.bins()) == [(0.0, 1.0, 5), (1.0, 2.0, 0), (2.0, 4.0, 4)]
    assert (look.within(1.5), look.within(4.0), look.within(99.0), look.foreseen) == (5, 9, 9, 9)


def test_a_short_stretch_is_a_rush_and_a_long_one_a_flow() -> None:
    look = Sample(due_within=((2.5, 10), (62.5, 70)))
    assert load(look, 0.0, 100.0).inflows == [(2.5, 2.5, 10), (2.5, 62.5, 60)]


def test_what_comes_unforeseen_is_a_flow_over_all_of_the_time() -> None:
    assert load(Sample(), 3.0, 20.0).inflows == [(0.0, 20.0, 60.0)]

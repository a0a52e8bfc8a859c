"""The horizons of a scrape: what a query may say, and what is answered."""

from __future__ import annotations

import pytest
from delayq.protocol.due_histogram import ALWAYS, asked


def test_a_scrape_without_horizons_gets_all() -> None:
    nothing_falls_due = dict.fromkeys(ALWAYS.ms.values(), 0)
    assert dict(ALWAYS.samples(nothing_falls_due)) == dict.fromkeys(
        ("10", "30", "60", "300", "900", "3600"), 0
    )


def test_a_query_is_read_in_any_order_and_each_horizon_once() -> None:
    horizons = asked(["60", "2.5", "1e1", "60.0", "10"])
    assert list(horizons.ms.items()) == [("2.5", 2500), ("10", 10_000), ("60", 60_000)]


def test_a_horizon_that_adds_nothing_to_its_smaller_neighbour_is_left_out() -> None:
    horizons = asked(["1", "2", "3", "4", "5"])
    within = {1000: 0, 2000: 7, 3000: 7, 4000: 7, 5000: 9}
    assert list(horizons.samples(within)) == [("2", 7), ("5", 9)]


def test_what_is_counted_is_what_the_label_says() -> None:
    assert asked(["1234567"]).ms == asked(["1234568"]).ms == {"1.23457e+06": 1_234_570_000}
    assert asked(["31622400", "0.0001"]).ms == {"0.0001": 1, "3.16224e+07": 31_622_400_000}


@pytest.mark.parametrize(
    "word", ["", "0", "-1", "+1", " 1", "1_0", "nan", "inf", "1e400", "31622401", "1h", "\u0661", "0x10", "."]
)
def test_a_wrong_horizon_is_reported_with_what_was_expected(word: str) -> None:
    with pytest.raises(ValueError, match="horizon: expected seconds above 0 and not above 31622400, got "):
        asked(["10", word])


def test_kinds_are_wanted_only_by_who_asks_for_them() -> None:
    assert (ALWAYS.kinds_ms, asked(["1"]).kinds_ms, asked(["1"], ["19.5"]).kinds_ms) == (0, 0, 19_500)
    with pytest.raises(
        ValueError, match='kinds_within: expected seconds above 0 and not above 31622400, got "x"'
    ):
        asked(["1"], ["x"])


def test_a_scrape_asks_for_so_many_and_no_more() -> None:
    words = [str(at + 1) for at in range(129)]
    assert len(asked(words[:128]).ms) == 128
    with pytest.raises(ValueError, match="horizon: expected at most 128 of them, got 129"):
        asked(words)

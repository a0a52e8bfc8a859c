"""What people type for durations, instants and rates, and how they are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.cli import views
from delayq.cli.formats import clean, instant_ms, iso, length, rate_per_second, relative, seconds
from delayq.cli.status import resharding
from delayq.durations import duration_ms
from delayq.protocol.results import Failures
from delayq.protocol.shard_map import ShardMap
from delayq_operator.kubectl.allowed import log
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1d2h3m4s5ms", 93784005),
        ("1.5h", 5400000),
        ("0s", 0),
    ],
)
def test_a_duration_has_units(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-12-01T09:00:00Z", 1_796_115_600_000),
        ("2026-12-01T10:00:00+01:00", 1_796_115_600_000),
        ("2026-12-01T09:00:00.0001Z", 1_796_115_600_001),  # never early
        ("2026-12-01T09:00:00.000000001Z", 1_796_115_600_001),
        ("2026-12-01T10:00:00,000000001+01:00", 1_796_115_600_001),  # as `date --iso-8601=ns` writes it
        ("2026-12-01T09:00:00.000000000Z", 1_796_115_600_000),
        ("0001-01-01T00:00:00+10:00", 0),  # the past is now, however long past
    ],
)
def test_an_instant_has_a_zone(text: str, ms: int) -> None:
    assert instant_ms(text) == ms


@pytest.mark.parametrize(
    ("read", "texts", "said"),
    [
        (
            duration_ms,
            ["", "-5m", "5", "1m1h", "1e3s", "٣s", "9" * 99 + "s", "1h 3m", "5m\n"],
            "a duration like",
        ),
        (duration_ms, ["30"], ", did you mean 30s or 30ms"),
        (instant_ms, ["2026-12-01T09:00:00", "2026-12-01", "20261201T0900"], "a time with its zone, like"),
        (instant_ms, ["", "now", "1796115600000", "2026-13-01T09:00:00Z", "9" * 99], "expected a time"),
        (instant_ms, ["9999-12-31T00:00:00Z"], 'a time up to the year 6429, got "9999-12-31T00:00:00Z"'),
        (rate_per_second, ["", "50", "0/s", "-1/s", "1/d", "inf/s", "nan/s", "50/ s"], "a rate above 0 like"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(
    read: Callable[[str], float], texts: list[str], said: str
) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=f"expected.*{said}|{said}"):
            read(text)


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50.0), ("90/m", 1.5), ("1800/h", 0.5), ("0.5/s", 0.5)])
def test_a_rate_has_a_unit(text: str, rate: float) -> None:
    assert rate_per_second(text) == rate


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (450, "450ms"),
        (60000, "1m"),
        (90000, "90s"),
        (1799990, "30m"),
        (3600000, "1h"),
        (9 * 86400000, "9d"),
    ],
)
def test_a_length_is_reported_in_one_unit(ms: int, said: str) -> None:
    assert length(ms) == said


def test_instants_are_reported_relative_to_now() -> None:
    assert [relative(at, 200_000) for at in (200_000, 380_000, 80_000)] == ["now", "in 3m", "2m ago"]


def test_a_spread_is_written_as_for_redrive() -> None:
    assert [seconds(each) for each in (0, 0.2, 4.24)] == ["at once", "in under 1 s", "in about 4 s"]


@given(st.text())
def test_no_text_moves_the_cursor(text: str) -> None:
    assert clean(text).isprintable()


@given(st.integers(0, (1 << 47) - 1))
def test_every_instant_reads_back(ms: int) -> None:
    assert instant_ms(iso(ms)) == ms
    assert iso(1 << 60) == str(1 << 60), "no calendar can name it"


def test_one_is_not_written_as_many() -> None:
    said = (
        views.error(Failures(failures=0, crashes=1, reason="crashes", error="")),
        resharding("orders", ShardMap(3, 1, 4, 1, 4)),
        resharding("orders", ShardMap(2, 4, 4, 1, 4)),
        log("not of delayq\n"),
    )
    assert said == (
        "its worker ended in 1 run (maxCrashes)",
        "note: tasks of orders move from 4 to 1 shard",
        "note: orders is about to have 1 shard instead of 4",
        "<1 line left out>",
    )

"""What is learnt from workers."""

from __future__ import annotations

import pytest
from delayq.scaling import HandlerTime, LeadTime


def test_the_mean_is_of_all_workers() -> None:
    learnt = HandlerTime()
    assert learnt.seconds is None
    learnt.take("one", 10.0, 10)
    learnt.take("two", 6.0, 30)
    assert learnt.seconds == pytest.approx(0.4)


def test_only_what_is_new_counts() -> None:
    learnt = HandlerTime()
    learnt.take("one", 10.0, 10)
    learnt.take("one", 10.0, 10)
    learnt.take("one", 40.0, 20)
    assert learnt.seconds == pytest.approx(2.0)


def test_a_container_that_started_anew_counts_from_zero() -> None:
    learnt = HandlerTime()
    learnt.take("one", 100.0, 100)
    learnt.take("one", 3.0, 1)
    assert learnt.seconds == pytest.approx(103 / 101)


def test_what_was_long_ago_fades() -> None:
    """Ten thousand tasks of a second are forgotten after a few thousand of ten milliseconds."""
    learnt = HandlerTime()
    learnt.take("one", 10_000.0, 10_000)
    for round_ in range(1, 31):
        learnt.take("one", 10_000 + round_, 10_000 + round_ * 100)
    assert learnt.seconds is not None
    assert learnt.seconds < 0.02


def test_what_was_remembered_counts_until_more_is_known() -> None:
    learnt = HandlerTime(since=5.0)
    assert learnt.seconds == 5.0
    learnt.take("one", 99.0, 99)
    assert learnt.seconds == pytest.approx(1.04)


def test_a_worker_that_is_gone_is_forgotten() -> None:
    learnt = HandlerTime()
    learnt.take("one", 10.0, 10)
    learnt.forget(but=[])
    learnt.take("one", 10.0, 10)
    assert learnt.seconds == pytest.approx(1.0)


def test_the_lead_is_the_p95_of_the_last_starts() -> None:
    learnt = LeadTime()
    assert learnt.seconds is None
    for number in range(20):
        learnt.take(f"worker-{number}", 5.0 + number)
    assert learnt.seconds == 23.0
    for number in range(20):
        learnt.take(f"later-{number}", 4.0)
    assert learnt.seconds == 4.0


def test_a_start_counts_once_and_a_wrong_clock_never() -> None:
    learnt = LeadTime(since=8.0)
    learnt.take("one", 3.0)
    learnt.take("one", 3000.0)
    learnt.take("two", -5.0)
    learnt.take("three", 1e9)
    assert learnt.seconds == 8.0

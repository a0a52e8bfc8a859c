"""What is learnt from workers."""

from __future__ import annotations

import pytest
from delayq.scaling import HandlerTime, LeadTime
from hypothesis import given
from hypothesis import strategies as st


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


def test_the_lead_is_the_p95_of_the_last_starts_and_a_margin() -> None:
    learnt = LeadTime()
    assert learnt.seconds is None
    for number in range(20):
        learnt.take(f"worker-{number}", 5.0 + number)
    assert learnt.seconds == pytest.approx(23.0 * 22 / 21)
    for number in range(20):
        learnt.take(f"later-{number}", 4.0)
    assert learnt.seconds == pytest.approx(4.0 * 22 / 21)


def test_a_start_counts_once_and_a_wrong_clock_never() -> None:
    learnt = LeadTime(since=8.0)
    learnt.take("one", 3.0)
    learnt.take("one", 3000.0)
    learnt.take("two", -5.0)
    learnt.take("three", 1e9)
    assert learnt.seconds == 8.0


def test_handlers_that_do_not_end_are_long() -> None:
    """Both workers have been busy for a minute without ending one: a second each, as so far, it cannot be."""
    learnt = HandlerTime(since=1.0)
    for now in (100.0, 130.0, 160.0):
        for worker in ("one", "two"):
            learnt.take(worker, 0.0, 0)
            learnt.watch(worker, busy=32, now=now)
    assert learnt.seconds == 60.0


def test_nothing_learnt_and_nothing_ended_is_at_least_the_time_so_far() -> None:
    learnt = HandlerTime()
    learnt.watch("one", busy=1, now=0.0)
    assert learnt.seconds is None
    learnt.watch("one", busy=1, now=30.0)
    assert learnt.seconds == 30.0


def test_one_worker_that_ends_some_or_has_none_lifts_the_suspicion() -> None:
    learnt = HandlerTime(since=1.0)
    for now, tasks in ((0.0, 0), (60.0, 40)):
        learnt.take("hangs", 0.0, 0)
        learnt.watch("hangs", busy=1, now=now)
        learnt.take("works", tasks * 1.0, tasks)
        learnt.watch("works", busy=5, now=now)
    assert learnt.seconds == pytest.approx(1.0)
    learnt.watch("hangs", busy=0, now=61.0)
    assert learnt.seconds == pytest.approx(1.0)


def test_a_worker_that_is_older_than_who_listens_does_not_overrule_what_was_remembered() -> None:
    learnt = HandlerTime(since=5.0)
    learnt.take("one", 100_000.0, 1_000_000, older=True)
    assert learnt.seconds == 5.0
    learnt.take("one", 100_500.0, 1_000_100, older=True)
    assert learnt.seconds == pytest.approx((5 + 500) / 101)


def test_for_want_of_anything_else_an_old_worker_teaches() -> None:
    learnt = HandlerTime()
    learnt.take("one", 100_000.0, 1_000_000, older=True)
    assert learnt.seconds == pytest.approx(0.1)


@pytest.mark.parametrize(
    "told",
    [(1.7e308, 1), (1e300, 5), (float("nan"), 1), (1.0, float("inf")), (-1.0, 1), (5.0, 0), (1, 10**400)],
)
def test_nonsense_teaches_nothing(told: tuple[float, float]) -> None:
    learnt = HandlerTime(since=2.0)
    learnt.take("one", *told)
    assert learnt.seconds == 2.0


def test_many_at_once_are_learnt_apart_from_single_starts() -> None:
    """One worker alone takes 5 s, six at once take up to 7.7 s: neither says much of the other."""
    learnt = LeadTime()
    for number in range(20):
        learnt.take(f"alone-{number}", 5.0)
    assert learnt.of(1) == pytest.approx(5.0 * 22 / 21)
    assert (learnt.of(2), learnt.of(6), learnt.of(100)) == (15.0, 15.0, 15.0), "none was seen"
    for number in range(6):
        learnt.take(f"together-{number}", 7.2 + number / 10, together=6)
    assert learnt.of(1) == pytest.approx(5.0 * 22 / 21)
    assert learnt.of(6) == pytest.approx(7.7 * 8 / 7)
    assert learnt.of(2) == learnt.of(6), "fewer take no longer"
    assert learnt.of(8) == 15.0


def test_the_margin_shrinks_with_the_starts_that_were_seen() -> None:
    for seen, margin in ((1, 0.5), (4, 0.2), (19, 0.05)):
        learnt = LeadTime()
        for number in range(seen):
            learnt.take(f"worker-{number}", 10.0)
        assert learnt.seconds == pytest.approx(10.0 * (1 + margin))


def test_more_at_once_than_were_ever_seen_take_half_as_much_again() -> None:
    learnt = LeadTime(since=20.0)
    assert learnt.by_starts == ((1, 20.0), (2, 30.0), (4, 30.0), (8, 30.0), (16, 30.0), (32, 30.0))
    learnt.take("one", 16.0, together=2)
    assert (learnt.of(1), learnt.of(3), learnt.of(4)) == (20.0, 24.0, 36.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 200)), max_size=60), st.none() | st.floats(1, 60)
)
def test_more_starts_never_take_less(starts: list[tuple[float, int]], since: float | None) -> None:
    learnt = LeadTime(since)
    for number, (seconds, together) in enumerate(starts):
        learnt.take(f"worker-{number}", seconds, together)
    found = [seconds for _, seconds in learnt.by_starts]
    assert found == sorted(found)
    assert bool(found) == (bool(starts) or since is not None)

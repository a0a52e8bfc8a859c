"""What is learnt from workers."""

from __future__ import annotations

import pytest
from delayq.scaling import HandlerTime, KindTimes, LeadTime
from delayq.scaling.learning import MOST_KINDS
from hypothesis import given
from hypothesis import strategies as st

Reported = tuple[str, float, float]  # a worker's counters: seconds in handlers, handlers


@pytest.mark.parametrize(
    ("since", "reported", "seconds"),
    [
        (None, [], None),
        (None, [("one", 10.0, 10), ("two", 6.0, 30)], 0.4),  # the mean is of all workers
        (None, [("one", 10.0, 10), ("one", 10.0, 10), ("one", 40.0, 20)], 2.0),  # only what is new counts
        (None, [("one", 100.0, 100), ("one", 3.0, 1)], 103 / 101),  # a container that started anew
        (5.0, [], 5.0),
        (5.0, [("one", 99.0, 99)], 1.04),  # what was remembered counts as a single task
        *(
            (2.0, [("one", *nonsense)], 2.0)
            for nonsense in (
                (1.7e308, 1),
                (float("nan"), 1),
                (1.0, float("inf")),
                (-1.0, 1),
                (5.0, 0),
                (1, 10**400),
            )
        ),
    ],
)
def test_the_mean_time_of_handlers_is_learnt_from_counters(
    since: float | None, reported: list[Reported], seconds: float | None
) -> None:
    learnt = HandlerTime(since=since)
    for each in reported:
        learnt.take(*each)
    assert learnt.seconds == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("since", [5.0, None])
def test_a_worker_that_is_older_than_who_listens_teaches_only_for_want_of_anything_else(
    since: float | None,
) -> None:
    learnt = HandlerTime(since=since)
    learnt.take("one", 100_000.0, 1_000_000, older=True)
    assert learnt.seconds == (since or pytest.approx(0.1))
    if since:
        learnt.take("one", 100_500.0, 1_000_100, older=True)
        assert learnt.seconds == pytest.approx((5 + 500) / 101)
    learnt.forget(but=[])
    learnt.take("one", 10.0, 10)
    assert learnt.seconds is not None


def test_what_was_long_ago_fades() -> None:
    """Ten thousand tasks of a second are forgotten after a few thousand of ten milliseconds."""
    learnt = HandlerTime()
    learnt.take("one", 10_000.0, 10_000)
    for round_ in range(1, 31):
        learnt.take("one", 10_000 + round_, 10_000 + round_ * 100)
    assert learnt.seconds is not None
    assert learnt.seconds < 0.02


counters = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["one", "two"]), st.floats(0, 50), st.integers(0, 50)
)


@given(st.lists(counters, max_size=30), st.booleans())
def test_each_kind_has_the_mean_that_it_would_have_alone(
    reported: list[tuple[str, str, float, int]],
    older: bool,  # noqa: FBT001 -- drawn
) -> None:
    """And none of them matters if no two differ by a factor of two."""
    kinds, alone = KindTimes(), {kind: HandlerTime() for kind in "abc"}
    for number, (kind, worker, seconds, tasks) in enumerate(reported):
        kinds.take(kind, worker, seconds, tasks, older=older)
        alone[kind].take(worker, seconds, tasks, older=older)
        if number % 7 == 0:
            kinds.forget(but=["one"])
            for each in alone.values():
                each.forget(but=["one"])
    means = {kind: each.seconds for kind, each in alone.items() if each.seconds is not None}
    apart = means and 0 < max(means.values()) >= 2 * min(means.values())
    assert kinds.seconds == (means if apart else {})


def test_means_of_kinds_outlive_their_workers_and_are_bounded() -> None:
    """The reports of tomorrow's midnight need them, and workers may report any names."""
    kinds = KindTimes()
    for name, seconds in (("report", 60.0), ("mail", 0.01)):
        kinds.take(name, "one", seconds, 1)
    kinds.forget(but=[])
    assert kinds.seconds == {"mail": 0.01, "report": 60.0}
    for number in range(MOST_KINDS - 1):
        kinds.take("report", "two", 60.0, 1)
        kinds.take(f"kind-{number}", "two", 1.0, 1)
    assert len(kinds.seconds) == MOST_KINDS
    assert "mail" not in kinds.seconds, "which no worker has reported for the longest time"


def test_the_lead_is_the_p95_of_the_last_starts_and_a_margin_that_shrinks_with_them() -> None:
    for seen, margin in ((1, 0.5), (4, 0.2), (19, 0.05)):
        few = LeadTime()
        for number in range(seen):
            few.take(f"worker-{number}", 10.0)
        assert few.seconds == pytest.approx(10.0 * (1 + margin))
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
    """Both workers have been busy for a minute without ending one: a second each, as so far, it cannot be.

    Where nothing was learnt, it is at least the time so far.
    """
    new = HandlerTime()
    new.watch("one", busy=1, now=0.0)
    assert new.seconds is None
    new.watch("one", busy=1, now=30.0)
    assert new.seconds == 30.0
    learnt = HandlerTime(since=1.0)
    for now in (100.0, 130.0, 160.0):
        for worker in ("one", "two"):
            learnt.take(worker, 0.0, 0)
            learnt.watch(worker, busy=32, now=now)
    assert learnt.seconds == 60.0


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


def test_more_at_once_than_were_ever_seen_take_half_as_much_again() -> None:
    learnt = LeadTime(since=20.0)
    assert learnt.by_starts == ((1, 20.0), (2, 30.0), (4, 30.0), (8, 30.0), (16, 30.0), (32, 30.0))
    learnt.take("one", 16.0, together=2)
    assert (learnt.of(1), learnt.of(3), learnt.of(4)) == (20.0, 24.0, 36.0)


def test_the_likely_time_has_no_margin_and_no_least_time() -> None:
    learnt = LeadTime(since=9.0)
    assert learnt.likely == ((1, 9.0), (2, 13.5), (4, 13.5), (8, 13.5), (16, 13.5), (32, 13.5))
    for number, seconds in enumerate((2.6, 3.0, 3.6)):
        learnt.take(f"worker-{number}", seconds)
    assert learnt.likely[0] == (1, 3.6)
    assert learnt.likely[3][1] == pytest.approx(5.4)
    assert (learnt.of(1), learnt.of(8)) == (9.0, 15.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 200)), max_size=60), st.none() | st.floats(1, 60)
)
def test_more_starts_never_take_less(starts: list[tuple[float, int]], since: float | None) -> None:
    learnt = LeadTime(since)
    for number, (seconds, together) in enumerate(starts):
        learnt.take(f"worker-{number}", seconds, together)
    found, likely = ([seconds for _, seconds in each] for each in (learnt.by_starts, learnt.likely))
    assert (found, likely) == (sorted(found), sorted(likely))
    assert all(one <= other for one, other in zip(likely, found, strict=True))
    assert bool(found) == (bool(starts) or since is not None)

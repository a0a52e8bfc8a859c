"""What a decision is made from, out of the text that scanners really export."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.scaling import Policy, Sample, begun, decide, sentence
from delayq_operator.scrape.backlog import Reading
from delayq_operator.scrape.sampling import sample
from delayq_operator.scrape.worker_stats import Fleet, WorkerStats

from tests.unit.operator.scrape.test_backlog import BUSY, scanner

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample as Line

NOW = 1_800_000_000.0
ASKED = (0.5, 1.0, 1.5, 10.0, 60.0)


def sampled(*scanners: list[Line]) -> Sample:
    fleet = Fleet(ready=2, starting=1, starting_seconds=3)
    found = sample(Reading(scanners), ASKED, WorkerStats({"leadTimeSeconds": 8}), fleet)
    assert found is not None
    return found


def busy(**more: Any) -> dict[str, Any]:  # noqa: ANN401 -- the fields of Counts
    return {**BUSY, "stats": {"claimed": 50, "released": 3, "reclaimed": 2}, **more}


def test_a_look_has_everything_that_is_known() -> None:
    due_within = {500: 0, 1000: 4, 1500: 4, 10_000: 9, 60_000: 9}
    assert sampled(scanner({0: True}, **busy(due_within=due_within))) == Sample(
        overdue=5,
        overdue_seconds=9.0,
        in_flight=3,
        due_within=((0.5, 0), (1.0, 4), (1.5, 4), (10.0, 9), (60.0, 9)),
        next_due_seconds=60.0,
        fallen_due=50 - 3 - 2 + 5,
        ready=2,
        starting=1,
        starting_seconds=3,
        lead_seconds=8.0,
        leads=((1, 8.0), (2, 15.0), (4, 15.0), (8, 15.0), (16, 15.0), (32, 15.0)),
        likely=((1, 8.0), (2, 12.0), (4, 12.0), (8, 12.0), (16, 12.0), (32, 12.0)),
    )


@pytest.mark.parametrize("missing", ["due", "in_flight"])
def test_a_missing_number_is_not_zero(missing: str) -> None:
    lines = [line for line in scanner({0: True}, **busy()) if line[1].get("state") != missing]
    fleet = Fleet(ready=2, starting=1, starting_seconds=3)
    assert sample(Reading([lines]), ASKED, WorkerStats({}), fleet) is None


def test_shards_add_up_on_the_horizons_that_were_asked_for() -> None:
    """What one leaves out has as many as its next smaller one."""
    one = scanner({0: True, 1: False}, **busy(due_within={500: 2, 1000: 2, 1500: 7, 10_000: 7, 60_000: 7}))
    other = scanner({0: False, 1: True}, **busy(due_within={500: 0, 1000: 5, 1500: 5, 10_000: 5, 60_000: 8}))
    one.append(("delayq_due_within_tasks", {"shard": "0", "horizon_seconds": "100"}, 1.0))  # not asked for
    found = sampled(one, other)
    assert found.due_within == ((0.5, 2), (1.0, 7), (1.5, 12), (10.0, 12), (60.0, 15))
    assert (found.overdue, found.in_flight, found.fallen_due, found.whole) == (10, 6, 2 * 50, True)


def due_kinds(shard: int, **tasks: float) -> list[Line]:
    return [
        ("delayq_due_kind_tasks", {"queue": "orders", "shard": str(shard), "kind": kind}, float(count))
        for kind, count in tasks.items()
    ]


def test_kinds_count_with_their_own_handler_time_and_others_with_that_of_all() -> None:
    """Unless every busy worker has ended no handler for longer."""
    one, other = scanner({0: True, 1: False}, **busy()), scanner({0: False, 1: True}, **busy())
    lines = [[*one, *due_kinds(0, mail=60, report=20)], [*other, *due_kinds(1, report=10, push=10)]]
    stats = WorkerStats({"handlerMilliseconds": 500})

    def kinds(quickest: float | None = 0.01) -> tuple[tuple[float, float], ...]:
        found = sample(Reading(lines), ASKED, stats, Fleet())
        assert found is not None
        assert found.handler_seconds == max(0.5, stats.handler.stuck_seconds)
        assert found.quickest_seconds == quickest
        return found.kinds

    assert kinds(quickest=None) == (), "nothing is known of kinds"
    for kind, seconds in (("mail", 0.01), ("report", 60.0)):
        stats.kinds.take(kind, "w", seconds, 1)
    assert kinds() == ((0.6, 0.01), (0.1, 0.5), (0.3, 60.0))
    stats.handler.watch("w", busy=1, now=0.0)
    stats.handler.watch("w", busy=1, now=20.0)
    assert kinds() == ((0.7, 20.0), (0.3, 60.0))
    lines[:] = [one, other]  # scanners of a previous version, or nothing falls due
    assert kinds() == ()


def test_a_shard_without_a_leader_makes_a_reading_partial_and_hides_what_ever_fell_due() -> None:
    """Another sum than before would look like tasks that fell due, or did not."""
    found = sampled(scanner({0: True, 1: False}, **busy()))
    assert (found.whole, found.fallen_due, found.overdue) == (False, None, 5)


def test_tasks_that_wait_for_a_verdict_need_no_worker() -> None:
    found = sampled(scanner({0: True}, **busy(in_flight=7, lapsed=7)))
    assert found.in_flight == 0
    found = sampled(scanner({0: True, 1: True}, **busy(in_flight=7, lapsed=6)))
    assert found.in_flight == 2, "what a worker holds counts still"


def test_a_due_time_is_within_the_range_of_datetimes() -> None:
    lines = [line for line in scanner({0: True}, **busy()) if line[0] != "delayq_next_due_seconds"]
    found = sampled([*lines, ("delayq_next_due_seconds", {"queue": "orders", "shard": "0"}, 1e300)])
    decision = decide(
        replace(found, overdue=0, in_flight=0, due_within=()), Policy(slots=1), begun(0, 0), NOW
    )
    assert "workers start by 2" in sentence(decision)

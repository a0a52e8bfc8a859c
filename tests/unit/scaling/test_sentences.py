"""Decisions in words, and decisions made again from their record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq.contract.autoscaling import Fallback
from delayq.scaling import replayed, sentence
from delayq.scaling.learning import LeadTime
from delayq.scaling.record import recorded
from delayq.scaling.sentences import seconds

from tests.unit.scaling.looks import decided, policy, sample

if TYPE_CHECKING:
    from delayq.scaling import Decision


FALLS_BACK = policy(fallback=Fallback(after_seconds=15, replicas=5))


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (
            decided(sample((12.0, 2000), handler_seconds=0.1, ready=4), before=4),
            (
                "4 → 7 workers: 2,000 due within 15 s; 7 × 32 slots of 0.1 s a task "
                "start them up to 0.8 s late (objective 1 s)"
            ),
        ),
        (
            decided(sample((12.0, 2000), overdue=3, in_flight=7, ready=4), before=4),
            "up to 1.5 s late (objective 1 s); 32 were needed, more than maxReplicas",
        ),
        (decided(sample(overdue=1, handler_seconds=None)), "of 1 s a task (not learnt yet)"),
        (
            decided(sample((600.0, 5)), before=1),
            "1 → 0 workers: nothing is due, in flight or due within 15 s; workers start by 2025-06-15 15:16:25 UTC",
        ),
        (decided(None, before=4), "4 workers: metrics cannot be read: the number is kept"),
        (
            decided(None, before=4, rules=FALLS_BACK, failures=2),
            "4 → 5 workers: metrics cannot be read, 3 times in a row: fallback.replicas applies",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.reason,
)
def test_a_decision_is_reported_with_its_inputs(decision: Decision, says: str) -> None:
    assert says in sentence(decision)


def test_the_lateness_is_that_of_workers_that_start_as_they_did() -> None:
    """Every start so far took 2.6 to 3.6 s, alone. A decision relies on 15 s for six at once; the reader need not."""
    starts = LeadTime()
    for number, took in enumerate((2.6, 3.0, 3.6)):
        starts.take(f"worker-{number}", took)
    known = {"ready": 1, "lead_seconds": starts.seconds, "leads": starts.by_starts}
    rules = policy(slots=10, max_replicas=6)
    cautious, found = (
        decided(sample((10.0, 150), **known, likely=likely), before=1, rules=rules)
        for likely in ((), starts.likely)
    )
    assert (found.replicas, found.lead_seconds) == (cautious.replicas, cautious.lead_seconds) == (6, 15.0)
    assert cautious.late_seconds == pytest.approx(5.0)
    assert found.late_seconds == pytest.approx(1.0)
    assert replayed(recorded(found)) == found
    reported = replace(found, policy=replace(rules, lead_seconds=15.0))
    assert reported.late_seconds == cautious.late_seconds, "leadTimeSeconds says how long it takes"


def test_with_kinds_no_lateness_is_named() -> None:
    """A message that gives all tasks the mean of their kinds would be wrong."""
    found = decided(sample((12.0, 200), handler_seconds=0.01, kinds=((0.5, 60.0), (0.5, 0.01))))
    assert sentence(found).endswith(" 4 × 32 slots of 30 s a task (weighted by kind)")


@pytest.mark.parametrize(
    ("value", "reported"),
    [(0.0, "0 s"), (0.0042, "4.2 ms"), (0.53, "0.53 s"), (90, "90 s"), (660, "11 min"), (10_800, "3 h")],
)
def test_times_are_written_as_people_say_them(value: float, reported: str) -> None:
    assert seconds(value) == reported


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"at": 1, "sample": null, "policy": {}, "previous": {}}', "nonsense"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected the record of a decision|Expecting value"):
        replayed(text)

"""benchmarks/simulation/random_traces.py: published figures are of the same traces, and count what they say."""

from __future__ import annotations

from hashlib import sha256

import pytest
from delayq.scaling import Policy

from benchmarks.simulation import Arrival, Tasks
from benchmarks.simulation.random_traces import Always, Outcome, Result, Trial, lines, outcome, trials


def trial(*handlers: float, late: float = 1.0, number: int = 0) -> Trial:
    tasks = Tasks.of(Arrival(60.0, each) for each in handlers)
    return Trial(number, tasks, Policy(slots=1, lateness_seconds=late, max_replicas=2), 10.0)


def test_a_seed_draws_the_traces_of_the_published_figures() -> None:
    """docs/contributing/simulation.md compares commits by them."""
    drawn = sha256()
    for each in trials(20, 7):
        drawn.update(each.tasks.due.tobytes() + each.tasks.scheduled.tobytes())
        policy = (
            each.policy.slots,
            each.policy.max_replicas,
            each.policy.lateness_seconds,
            each.lead_seconds,
        )
        drawn.update(each.tasks.handler_seconds.tobytes() + repr(policy).encode())
    assert drawn.hexdigest() == "f98ec35d352ab8951283d629b4a76135b217d13d8f1be86924b398f9c2659e85"


def test_a_fleet_at_its_maximum_starts_at_once_and_stays_to_the_end() -> None:
    """Two workers for three tasks: the third begins at 62 s, twice as late as the objective allows, and ends at 64."""
    found = outcome(trial(2.0, 2.0, 2.0), Always(2))
    assert found.excess == pytest.approx(2.0)
    assert found.worker_seconds == pytest.approx(2 * 64.0)


@pytest.mark.parametrize(
    ("handlers", "late", "cause"),
    [
        ((0.1, 1.0), 5.0, "mixed handler times"),
        ((2.0, 3.0), 2.0, "long handlers"),
        ((0.1, 0.5), 1.0, "other"),
    ],
)
def test_a_miss_has_the_cause_that_its_trace_shows(
    handlers: tuple[float, ...], late: float, cause: str
) -> None:
    assert trial(*handlers, late=late).cause(fresh=False).partition(":")[0] == cause


def test_a_queue_that_has_learnt_nothing_misses_by_a_lead_time_longer_than_it_assumes() -> None:
    slow = trial(0.1, 8.0)._replace(lead_seconds=16.0)
    assert slow.cause(fresh=True).startswith("long lead time: longer than the 15 s ")
    assert slow.cause(fresh=False).startswith("mixed")
    assert trial(0.1, 8.0).cause(fresh=True).startswith("mixed")


def test_the_table_pairs_both_figures_with_the_fleet_on_the_same_traces() -> None:
    found = [
        Result(Outcome(each, 0.5, 100.0), Outcome(each, excess, 20.0), Outcome(each, 2.0, 30.0))
        for each, excess in ((trial(1.0), 1.0), (trial(0.1, 8.0, number=4), 1.5))
    ]
    text = "\n".join(" ".join(line.split()) for line in lines(found, 5, 7))
    assert text.startswith("seed 7: a fleet at its maximum meets the objective on 2 of 5 traces\n")
    assert "\nhas learnt its tasks 1 50.0% 0.20\nhas learnt nothing 0 0.0% 0.30\n" in text
    assert "has learnt its tasks, 1 missed, mixed handler times" in text
    assert "#4 p99 1.50 × the objective: 2 tasks of 0.1, 8 s" in text

"""What holds of every simulation, and how production's decision fares on loads with a name."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import pytest
from delayq.contract.autoscaling import Behavior, ScaleDown
from delayq.scaling import Policy, Sample, sentence
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Known, Plant, Production, Reactive, Run, Tasks, simulate
from benchmarks.simulation.outlook import Outlook
from benchmarks.simulation.report import summary
from benchmarks.simulation.scenario import scenario
from tests.unit.simulation.strategies import arrivals

if TYPE_CHECKING:
    from benchmarks.simulation import Pilot

pytestmark = pytest.mark.slow

LEAD = 11.0
START = 1_750_000_000.0


def policy(**changed: object) -> Policy:
    return Policy(**{"slots": 10, "max_replicas": 100, **changed})  # type: ignore[arg-type]


def simulated(
    tasks: Tasks, rules: Policy, *, lead: float = LEAD, replicas: int = 0, known: Known | None = None
) -> Run:
    known = Known(tasks.mean_handler_seconds, lead) if known is None else known
    pilot = Production(rules, replicas=replicas, start=START, known=known)
    return flown(tasks, pilot, rules, lead=lead, replicas=replicas)


def flown(tasks: Tasks, pilot: Pilot, rules: Policy, *, lead: float = LEAD, replicas: int = 0) -> Run:
    return simulate(tasks, pilot, Plant(tasks, slots=rules.slots, lead_seconds=lead, replicas=replicas))


def made(text: str) -> Tasks:
    return Tasks.of(scenario(text))


# what holds of every simulation


small = st.tuples(
    st.lists(arrivals(), min_size=1, max_size=20).map(Tasks.of),
    st.builds(
        policy,
        slots=st.integers(1, 4),
        max_replicas=st.integers(1, 8),
        lead_seconds=st.none() | st.just(5.0),
        cooldown_seconds=st.sampled_from([0.0, 60.0]),
        behavior=st.sampled_from(
            [Behavior(), Behavior(scale_down=ScaleDown(stabilization_window_seconds=0))]
        ),
    ),
    st.sampled_from([0.0, 3.0, 20.0]),
    st.sampled_from([Production, Reactive]),
)


def fly(case: tuple[Tasks, Policy, float, type[Production | Reactive]]) -> Run:
    tasks, rules, lead, kind = case
    if kind is Production:
        return simulated(tasks, rules, lead=lead, known=Known())
    return flown(tasks, Reactive(rules, replicas=0), rules, lead=lead)


@given(small)
@settings(max_examples=60)
def test_every_task_runs_once_in_turn_and_none_early(
    case: tuple[Tasks, Policy, float, type[Production | Reactive]],
) -> None:
    run = fly(case)
    began, due = run.plant.began, run.tasks.due
    assert run.plant.finished == run.plant.claimed == len(run.tasks)
    assert run.plant.in_flight == 0
    assert all(at >= when for at, when in zip(began, due, strict=True))
    assert all(before <= after for before, after in pairwise(began))
    assert all(when >= each for when, each in zip(due, run.tasks.scheduled, strict=True))
    assert summary(run, case[1]).early == 0


@given(small)
@settings(max_examples=60)
def test_no_worker_has_more_than_its_slots_or_claims_before_it_started_or_after_it_was_to_go(
    case: tuple[Tasks, Policy, float, type[Production | Reactive]],
) -> None:
    run = fly(case)
    spans: dict[int, list[tuple[float, int]]] = {}
    for task, number in enumerate(run.plant.began_by):
        start = run.plant.began[task]
        worker = run.plant.workers[number]
        assert worker.claims_at <= start
        assert start + run.tasks.handler_seconds[task] <= worker.gone
        spans.setdefault(number, []).extend([(start, 1), (start + run.tasks.handler_seconds[task], -1)])
    for events in spans.values():
        busy = 0
        for _, change in sorted(events):
            busy += change
            assert busy <= case[1].slots


@given(small)
@settings(max_examples=30)
def test_the_same_again_is_the_same(case: tuple[Tasks, Policy, float, type[Production | Reactive]]) -> None:
    one, two = fly(case), fly(case)
    assert (one.looks, one.changes, one.plant.began) == (two.looks, two.changes, two.plant.began)


@given(small)
@settings(max_examples=60)
def test_the_number_is_bounded_and_nothing_is_left_at_the_end(
    case: tuple[Tasks, Policy, float, type[Production | Reactive]],
) -> None:
    run = fly(case)
    assert all(0 <= look.replicas <= case[1].max_replicas for look in run.looks)
    assert all(look.ready <= look.replicas for look in run.looks)
    assert run.looks[-1].replicas == 0
    assert all(worker.gone < inf for worker in run.plant.workers)
    assert run.plant.leaving == 0


@given(st.lists(arrivals(), min_size=1, max_size=30), st.lists(st.floats(0, 300), min_size=1, max_size=8))
def test_the_outlook_counts_what_is_known_and_not_yet_due(some: list[Arrival], times: list[float]) -> None:
    tasks = Tasks.of(some)
    outlook = Outlook(tasks)
    for now in sorted(times):
        seen = [
            due for due, scheduled in zip(tasks.due, tasks.scheduled, strict=True) if scheduled <= now < due
        ]
        asked = (0.5, 10.0, 60.0, 500.0)
        expected = tuple((each, sum(1 for due in seen if due <= now + each)) for each in asked)
        assert outlook.within(now, asked) == expected
        assert outlook.next_due_seconds(now) == (min(seen) - now if seen else None)
        assert outlook.fallen_due(now) == sum(1 for due in tasks.due if due <= now)


# scale-in


def test_idle_workers_go_first_and_busy_ones_finish_what_they_have() -> None:
    tasks = Tasks.of([Arrival(0.0, 100.0, tasks=3)])
    plant = Plant(tasks, slots=1, lead_seconds=0.0, replicas=5)
    plant.advance(10.0)
    plant.scale(3)
    assert [worker.number for worker in plant.staff] == [0, 1, 2]
    plant.scale(1)
    assert (plant.leaving, plant.in_flight) == (2, 3)
    plant.advance(200.0)
    assert (plant.leaving, plant.finished) == (0, 3)
    assert sorted(worker.gone for worker in plant.workers) == [10.0, 10.0, 100.0, 100.0, inf]
    assert plant.pod_seconds(200.0) == 10 + 10 + 100 + 100 + 200


def test_workers_on_their_way_go_before_those_that_are_there() -> None:
    plant = Plant(Tasks.of([]), slots=1, lead_seconds=10.0, replicas=2)
    plant.scale(5)
    plant.advance(5.0)
    plant.scale(3)
    assert (len(plant.starting), [worker.number for worker in plant.staff]) == (1, [0, 1, 2])
    plant.advance(20.0)
    assert plant.starting == []


# production's decision on loads with a name


@pytest.mark.parametrize(
    ("tasks", "handler", "lead"),
    [(1, 0.5, 11.0), (2000, 0.5, 11.0), (2000, 0.1, 3.0), (300, 20.0, 45.0), (50, 600.0, 11.0)],
)
def test_a_rush_seen_a_window_ahead_finds_its_workers_ready(tasks: int, handler: float, lead: float) -> None:
    """From zero: everybody who was asked for claims before it is due, and all begin within the objective."""
    rules = policy(max_replicas=500)
    run = simulated(Tasks.of([Arrival(120.0, handler, tasks=tasks)]), rules, lead=lead)
    [first, *_] = run.changes
    assert first.before == 0
    assert first.at + lead <= 120.0
    assert first.at + rules.window(lead) + rules.period_seconds >= 120.0
    found = summary(run, rules)
    assert found.late is not None
    assert found.late.worst <= rules.lateness_seconds
    assert found.ups == 1


def test_the_same_rush_is_minutes_late_without_foresight() -> None:
    tasks, rules = made("spike:2000@60s/500ms"), policy()
    found = summary(flown(tasks, Reactive(rules, replicas=0), rules), rules)
    assert found.late is not None
    assert found.late.p50 > 30
    assert not found.met


@pytest.mark.parametrize("text", ["steady:40/s@45m/500ms", "steady:2/s@45m/20s", "steady:60/s@45m/10ms"])
def test_a_steady_load_has_a_steady_number(text: str) -> None:
    """After ten minutes to settle, not one change in the half hour that follows."""
    run = simulated(made(text), policy(), known=Known())
    assert [change for change in run.changes if 600 <= change.at <= 2400] == []


@pytest.mark.parametrize("text", ["poisson:40/s@80m/500ms", "poisson:1/s@80m/2s"])
def test_a_load_by_chance_has_a_number_that_hardly_moves(text: str) -> None:
    """Up to one worker more or fewer, a few times an hour: chance, not a loop that feeds itself."""
    run = simulated(made(text), policy(), known=Known())
    numbers = [look.replicas for look in run.looks if 600 <= look.at <= 4200]
    assert max(numbers) - min(numbers) <= 1
    assert len([change for change in run.changes if 600 <= change.at <= 4200]) <= 6


def test_no_worker_is_asked_for_while_nothing_falls_due_and_one_is_there_in_time() -> None:
    run = simulated(Tasks.of([Arrival(3600.0, 1.0)]), policy())
    assert [(change.before, change.after) for change in run.changes] == [(0, 1), (1, 0)]
    assert run.plant.began[0] == 3600.0
    assert run.plant.pod_seconds(run.end) < 120


def test_a_queue_learns_the_lead_and_the_handler_time_on_the_way() -> None:
    """The first rush finds half the workers: a lead of 40 s was taken for 15; the second is met in time."""
    tasks = Tasks.of([Arrival(60.0, 2.0, tasks=100), Arrival(1200.0, 2.0, tasks=100)])
    run = simulated(tasks, policy(slots=1), lead=40.0, known=Known())
    late = [began - due for began, due in zip(run.plant.began, tasks.due, strict=True)]
    assert max(late[:100]) > 10
    assert max(late[100:]) == 0.0


def test_a_sample_is_what_the_operator_would_see() -> None:
    tasks = Tasks.of(
        [Arrival(0.0, 3.0, tasks=25), Arrival(8.0, 3.0, tasks=7), Arrival(9.0, 3.0, scheduled=5.0)]
    )
    plant, outlook = Plant(tasks, slots=10, lead_seconds=LEAD, replicas=1), Outlook(tasks)
    rules = policy()
    pilot = Production(rules, replicas=1, start=START)
    plant.advance(4.0)
    plant.scale(3)
    look = pilot.sample(plant, outlook)
    assert look == Sample(
        overdue=5,
        overdue_seconds=4.0,
        in_flight=10,
        due_within=look.due_within,
        next_due_seconds=4.0,
        fallen_due=25,
        ready=1,
        starting=2,
        starting_seconds=0.0,
        handler_seconds=3.0,
        lead_seconds=None,
    )
    assert (look.within(3.5), look.within(4.0), look.within(5.0)) == (0, 7, 7)


def test_every_change_has_the_sentence_of_its_decision() -> None:
    run = simulated(made("spike:2000@60s/500ms"), policy())
    for change in run.changes:
        assert change.decision is not None
        assert sentence(change.decision).startswith(f"{change.before:,} → {change.after:,} worker")

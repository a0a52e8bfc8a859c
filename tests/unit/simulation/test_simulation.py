"""The decision on workers in a simulation, task by task: on loads of every kind, and on some with a name."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from delayq.contract.autoscaling import Behavior, ScaleDown
from delayq.scaling import Policy
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Known, Plant, Production, Run, Tasks, simulate
from benchmarks.simulation.report import summary
from benchmarks.simulation.scenario import scenario
from tests.unit.simulation.strategies import NOW, arrivals

pytestmark = pytest.mark.slow

LEAD = 11.0


def policy(**changed: object) -> Policy:
    return Policy(**{"slots": 10, "max_replicas": 100, **changed})  # type: ignore[arg-type]


def simulated(tasks: Tasks, rules: Policy, *, lead: float = LEAD, known: Known | None = None) -> Run:
    known = Known(tasks.mean_handler_seconds, lead) if known is None else known
    pilot = Production(rules, replicas=0, start=NOW, known=known)
    return simulate(tasks, pilot, Plant(tasks, slots=rules.slots, lead_seconds=lead, replicas=0))


@given(
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
)
@settings(max_examples=100)
def test_every_task_runs_once_in_turn_none_early_and_no_worker_is_left(
    tasks: Tasks, rules: Policy, lead: float
) -> None:
    run = simulated(tasks, rules, lead=lead, known=Known())
    plant = run.plant
    assert (plant.finished, plant.claimed, plant.in_flight, plant.leaving) == (len(tasks), len(tasks), 0, 0)
    assert all(at >= due for at, due in zip(plant.began, tasks.due, strict=True))
    assert all(before <= after for before, after in pairwise(plant.began))
    assert all(0 <= look.ready <= look.replicas <= rules.max_replicas for look in run.looks)
    assert run.looks[-1].replicas == 0
    assert all(worker.gone < inf for worker in plant.workers)
    spans: dict[int, list[tuple[float, int]]] = {}
    for task, number in enumerate(plant.began_by):
        start, worker = plant.began[task], plant.workers[number]
        end = start + tasks.handler_seconds[task]
        assert worker.claims_at <= start
        assert end <= worker.gone
        spans.setdefault(number, []).extend([(start, 1), (end, -1)])
    for events in spans.values():
        changes = [change for _, change in sorted(events)]
        assert max(sum(changes[: nth + 1]) for nth in range(len(changes))) <= rules.slots


@pytest.mark.parametrize(
    ("tasks", "handler", "lead"),
    [(1, 0.5, 11.0), (2000, 0.5, 11.0), (2000, 0.1, 3.0), (300, 20.0, 45.0), (50, 600.0, 11.0)],
)
def test_a_rush_seen_a_window_ahead_finds_its_workers_ready(tasks: int, handler: float, lead: float) -> None:
    """From zero: all workers claim before it is due, and all tasks begin within the objective."""
    rules = policy(max_replicas=500)
    run = simulated(Tasks.of([Arrival(120.0, handler, tasks=tasks)]), rules, lead=lead)
    [first, *_] = run.changes
    assert first.before == 0
    assert first.at + lead <= 120.0 <= first.at + rules.window(lead) + rules.period_seconds
    found = summary(run, rules)
    assert found.late is not None
    assert found.late.worst <= rules.lateness_seconds
    assert found.ups == 1


@pytest.mark.parametrize(
    ("text", "spread", "changes"),
    [
        ("steady:40/s@45m/500ms", 0, 0),
        ("steady:2/s@45m/20s", 0, 0),
        ("steady:60/s@45m/10ms", 0, 0),
        ("poisson:40/s@80m/500ms", 1, 6),
        ("poisson:1/s@80m/2s", 1, 6),
    ],
)
def test_an_even_load_has_an_even_number_of_workers(text: str, spread: int, changes: int) -> None:
    """After ten minutes to settle, and until it ends: a load by chance may move it by one, a few times."""
    tasks = Tasks.of(scenario(text))
    run, end = simulated(tasks, policy(), known=Known()), tasks.due[-1] - 300
    numbers = [look.replicas for look in run.looks if 600 <= look.at <= end]
    assert max(numbers) - min(numbers) <= spread
    assert len([change for change in run.changes if 600 <= change.at <= end]) <= changes


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

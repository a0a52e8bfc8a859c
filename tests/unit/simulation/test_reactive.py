"""KEDA and the HPA with their defaults, step by step as their documents have them."""

from __future__ import annotations

from delayq.scaling import Policy

from benchmarks.simulation import Arrival, Plant, Reactive, Run, Tasks, simulate


def reactive(*arrivals: Arrival, most: int = 100, least: int = 0, lead: float = 10.0) -> Run:
    tasks = Tasks.of(arrivals)
    rules = Policy(slots=10, max_replicas=most, min_replicas=least)
    plant = Plant(tasks, slots=10, lead_seconds=lead, replicas=least)
    return simulate(tasks, Reactive(rules, replicas=least), plant)


def changes(run: Run) -> list[tuple[float, int]]:
    return [(change.at, change.after) for change in run.changes]


def test_from_zero_a_poll_brings_one_and_the_hpa_adds_the_larger_of_four_and_as_many_again() -> None:
    """The poll at 15 s just misses it, that at 45 s sees it: 1, then every 15 s 5, 10, 20, 40, and enough."""
    run = reactive(Arrival(16.0, 600.0, tasks=500))
    assert changes(run)[:6] == [(45.0, 1), (60.0, 5), (75.0, 10), (90.0, 20), (105.0, 40), (120.0, 50)]


def test_what_is_not_due_asks_for_nobody() -> None:
    assert changes(reactive(Arrival(3000.0, 1.0, tasks=500)))[0] == (3015.0, 1)


def test_a_tenth_more_is_tolerated() -> None:
    """54 tasks on five full workers, for more than a minute: no sixth."""
    run = reactive(Arrival(10.0, 200.0, tasks=50), Arrival(120.0, 200.0, tasks=4))
    assert max(after for _, after in changes(run)) == 5


def test_fewer_are_wanted_for_five_minutes_before_any_goes_and_none_is_left_after_the_cool_down() -> None:
    """KEDA's cool-down begins with the last poll that saw anything, up to 30 s before the end, and ends at a poll."""
    run = reactive(Arrival(14.0, 50.0, tasks=100))
    ends = [began + 50 for began in run.plant.began]
    downs = [(change.at, change.after) for change in run.changes if change.after < change.before]
    assert downs[-1][1] == 0
    assert downs[0][0] - max(ends) > 250
    assert max(ends) + 270 <= downs[-1][0] <= max(ends) + 330


def test_the_bounds_hold() -> None:
    run = reactive(Arrival(16.0, 60.0, tasks=500), most=7, least=2)
    numbers = {look.replicas for look in run.looks}
    assert (min(numbers), max(numbers)) == (2, 7)

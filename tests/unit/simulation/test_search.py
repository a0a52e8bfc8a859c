"""The decision against a plain search: each number of workers is tried, task by task, on a trickle with a burst."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from delayq.scaling import Policy, Sample, begun, decide, horizons
from delayq.scaling.model import RESERVE
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Known, Plant, Production, Tasks, simulate
from tests.unit.simulation.strategies import NOW

MOST = 24


class Case(NamedTuple):
    """Workers are busy with a trickle when a burst is scheduled; the first look at it."""

    slots: int
    ready: int
    handler_seconds: float
    busy_share: float
    """Of the slots, by the trickle."""
    lead_seconds: float
    """What a start takes, as it was learnt."""
    burst_due: float
    burst: int
    lateness_seconds: float

    @property
    def policy(self) -> Policy:
        return Policy(
            slots=self.slots, lateness_seconds=self.lateness_seconds, max_replicas=MOST, cooldown_seconds=0.0
        )

    @property
    def arrivals(self) -> list[Arrival]:
        """What the look can see."""
        window = self.policy.window(self.lead_seconds)
        rate = self.busy_share * self.slots * self.ready / self.handler_seconds
        trickle = [Arrival(each / rate, self.handler_seconds) for each in range(1, int(window * rate) + 1)]
        burst = Arrival(self.burst_due, self.handler_seconds, tasks=self.burst)
        return [*trickle, burst] if self.burst_due <= window else trickle

    def look(self, soonest_seconds: float) -> Sample:
        arrivals = self.arrivals
        return Sample(
            in_flight=round(self.busy_share * self.slots * self.ready),
            due_within=tuple(
                (at, sum(each.tasks for each in arrivals if each.due <= at))
                for at in horizons(self.policy.window(self.lead_seconds))
            ),
            ready=self.ready,
            handler_seconds=self.handler_seconds,
            lead_seconds=self.lead_seconds,
            soonest_seconds=soonest_seconds,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A trickle that the workers master, and a burst that falls due before help can come, with it or after it."""
    slots, ready = draw(st.sampled_from([(8, 1), (32, 1), (10, 2), (4, 3)]))
    return Case(
        slots=slots,
        ready=ready,
        handler_seconds=draw(st.sampled_from([0.1, 0.5, 1.0, 2.5])),
        busy_share=draw(st.floats(0.05, 0.6)),
        lead_seconds=draw(st.sampled_from([4.0, 8.0, 15.0])),
        burst_due=draw(st.floats(0.5, 25.0)),
        burst=draw(st.integers(1, 20 * slots)),
        lateness_seconds=draw(st.sampled_from([1.0, 5.0])),
    )


def late(case: Case, replicas: int, lead: float) -> list[float]:
    """Return how late each task begins with so many workers, when each start takes that long."""
    running = round(case.busy_share * case.slots * case.ready)
    held = [Arrival(0.0, case.handler_seconds * (each + 1) / running) for each in range(running)]
    tasks = Tasks.of([*held, *case.arrivals])
    plant = Plant(tasks, slots=case.slots, lead_seconds=lead, replicas=case.ready)
    plant.scale(replicas)
    plant.advance(1e6)
    return list(map(float.__sub__, plant.began[running:], tasks.due[running:]))


def excess(case: Case, found: list[float], best: list[float]) -> float:
    """Return by how much tasks are later than the objective, and than a little more than the best there is."""
    allowed = (max(case.lateness_seconds, each + min(case.lateness_seconds, each / 4)) for each in best)
    return max((one - most for one, most in zip(found, allowed, strict=True)), default=0.0)


def chosen(case: Case, soonest_seconds: float) -> int:
    """Return the number that is decided on."""
    return decide(case.look(soonest_seconds), case.policy, begun(case.ready, NOW), NOW).replicas


def tolerance(case: Case) -> float:
    """Return a round of handlers, which the model divides, and the step of the look ahead."""
    return case.handler_seconds * 1.1 + 0.5


@settings(max_examples=150)
@given(cases())
def test_the_number_is_as_good_as_the_best_and_not_much_larger(case: Case) -> None:
    """The search keeps the reserve that the model keeps: handlers that take a tenth longer."""
    best = late(case, MOST, case.lead_seconds)
    found = chosen(case, case.lead_seconds)
    assert excess(case, late(case, found, case.lead_seconds), best) <= tolerance(case)
    slow = case._replace(handler_seconds=case.handler_seconds * RESERVE, busy_share=case.busy_share * RESERVE)
    best = late(slow, MOST, case.lead_seconds)
    tried = range(case.ready, MOST + 1)
    fewest = next(each for each in tried if excess(slow, late(slow, each, case.lead_seconds), best) <= 0)
    assert found <= 1.5 * fewest + 1


@settings(max_examples=150)
@given(cases(), st.floats(0.0, 1.0))
def test_help_is_asked_for_that_may_come_in_time(case: Case, share: float) -> None:
    """Whatever a start takes between the shortest that is reckoned with and what was learnt."""
    soonest = case.lead_seconds / 3
    lead = soonest + share * (case.lead_seconds - soonest)
    found = late(case, chosen(case, soonest), lead)
    assert excess(case, found, late(case, MOST, lead)) <= tolerance(case)


class Crowded(Plant):
    """More workers take longer to start: one 5 s, six 7.75 s."""

    def scale(self, replicas: int) -> None:
        """Start or stop some."""
        self.lead_seconds = 4.45 + 0.55 * max(1, replicas - len(self.staff))
        super().scale(replicas)


@pytest.mark.parametrize("known", [None, 6])
def test_many_are_asked_for_earlier_than_one(known: int | None) -> None:
    """Single starts of 5 s were learnt, and six at once or not. All six are there when the burst falls due."""
    tasks, policy = Tasks.of([Arrival(61.5, 0.5, tasks=384)]), Policy(slots=32, max_replicas=6)
    pilot = Production(policy, replicas=0, start=NOW, known=Known(handler_seconds=0.5))
    for number in range(20):
        pilot._lead.take(f"single-{number}", 5.0)
    for number in range(known or 0):
        pilot._lead.take(f"crowd-{number}", 7.75, together=6)
    run = simulate(tasks, pilot, Crowded(tasks, slots=32, lead_seconds=5.0))
    assert max(map(float.__sub__, run.plant.began, tasks.due)) <= 0.5
    [asked] = [change.at for change in run.changes if change.after == 6]
    assert 61.5 - asked <= (19.0 if known is None else 13.0)


def test_a_trickle_does_not_hide_bursts() -> None:
    """A worker is busy with 3 tasks a second; every minute 150 are scheduled 10 s ahead. A start takes 5 s."""
    trickle = [Arrival(each / 3, 0.5, scheduled=each / 3) for each in range(1, 600)]
    bursts = [Arrival(at + 10.0, 0.5, scheduled=at, tasks=150) for at in (20.0, 80.0, 140.0)]
    tasks, policy = Tasks.of([*trickle, *bursts]), Policy(slots=32, max_replicas=6)
    pilot = Production(policy, replicas=1, start=NOW, known=Known(handler_seconds=0.5))
    run = simulate(tasks, pilot, Plant(tasks, slots=32, lead_seconds=5.0, replicas=1))
    assert max(map(float.__sub__, run.plant.began, tasks.due)) <= 1.0
    assert max(look.replicas for look in run.looks) == 3

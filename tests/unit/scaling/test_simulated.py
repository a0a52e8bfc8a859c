"""Decisions against a simulation of their tasks, one by one: the sentence is true, and the number is a good one."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

import pytest
from delayq.contract import Limits
from delayq.scaling import Decision, Policy, Sample, begun, decide, horizons, sentence
from delayq.scaling.load import load
from delayq.scaling.model import RESERVE
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Known, Plant, Production, Tasks, simulate
from tests.unit.scaling.strategies import NOW

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


@st.composite
def decisions(draw: st.DrawFn, *, limits: bool = False) -> Decision:
    """A queue with a trickle, bursts and a backlog, whose workers are there, on their way or missing."""
    policy = Policy(
        slots=draw(st.sampled_from([1, 4, 10, 32])),
        lateness_seconds=draw(st.sampled_from([0.1, 1.0, 10.0])),
        max_replicas=(most := draw(st.integers(1, 8))),
        lead_seconds=draw(st.sampled_from([0.0, 3.0, 11.0])),
        limits=Limits(max_in_flight=draw(st.sampled_from([5, 50]))) if limits else Limits(),
    )
    before = draw(st.integers(0, most))
    ready = draw(st.integers(0, before))
    starting = draw(st.integers(0, before - ready))
    most_in_flight = policy.limits.max_in_flight
    shrinks = draw(st.booleans())  # then nothing is in flight: it would be on workers that stay and on others
    overdue = draw(st.sampled_from([0, 0, 1, 40, 500]))
    rushes = draw(st.lists(st.tuples(st.floats(0.1, 14.0), st.integers(1, 300)), max_size=4))
    asked = horizons(policy.window(None))
    trickle = draw(st.sampled_from([0.0, 0.5, 3.0, 40.0]))
    seen = tuple((at, int(trickle * at) + sum(n for due, n in rushes if due <= at)) for at in asked)
    look = Sample(
        overdue=overdue,
        overdue_seconds=draw(st.floats(0.01, 60.0)) if overdue else 0.0,
        in_flight=0 if shrinks else draw(st.integers(0, min(ready * policy.slots, most_in_flight or 999))),
        due_within=seen,
        ready=ready,
        starting=starting,
        starting_seconds=draw(st.floats(0.0, 12.0)),
        handler_seconds=draw(st.sampled_from([0.01, 0.1, 0.5, 3.0, 30.0])),
    )
    return decide(look, policy, begun(before, NOW - 10_000 * shrinks), NOW)


def begins(decision: Decision, stage: float = 1.0) -> float:
    """Return how late the last task of a decision begins, when every task and every slot is followed."""
    look, policy = decision.sample, decision.policy
    assert look is not None
    assert look.handler_seconds is not None
    due = load(look, decision.unforeseen_rate, policy.window(look.lead_seconds))
    held = [Arrival(0.0, look.handler_seconds * stage)] * look.in_flight
    overdue = [Arrival(0.0, look.handler_seconds, tasks=look.overdue)] if look.overdue else []
    coming = [Arrival(each.end, look.handler_seconds, tasks=int(each.tasks)) for each in due.inflows]
    tasks = Tasks.of([*held, *overdue, *coming])
    plant = Plant(
        tasks,
        slots=policy.slots,
        lead_seconds=0.0,
        replicas=min(look.ready, decision.replicas),
        limits=policy.limits,
    )
    lead = policy.lead(look.lead_seconds)
    plant.lead_seconds = max(0.0, lead - look.starting_seconds)
    there = min(decision.replicas, look.ready + look.starting)
    plant.scale(there)
    plant.lead_seconds = lead
    plant.scale(there + max(0, decision.replicas - max(decision.before, there)))
    plant.advance(1e7)
    if plant.claimed < len(tasks):
        return inf
    first, last = len(held), len(held) + look.overdue
    late = [
        began - due + (look.overdue_seconds if first <= place < last else 0.0)
        for place, (began, due) in enumerate(zip(plant.began, tasks.due, strict=True))
        if place >= first
    ]
    return max(late, default=0.0)


def claimed(text: str) -> float | None:
    """Read how late tasks begin at the most; None where nothing is said."""
    if "start them on time" in text:
        return 0.0
    if "begin none of them" in text:
        return inf
    found = re.search(r"up to ([0-9.]+) (ms|s|min|h) late", text)
    return float(found[1]) * UNITS[found[2]] if found else None


@given(decisions() | decisions(limits=True))
def test_tasks_begin_as_late_as_is_said_and_no_later(decision: Decision) -> None:
    """To three digits. What is in flight has just begun, or is about to end: then the others begin earlier."""
    said = claimed(sentence(decision))
    assert (said is None) == (not decision.replicas)
    if said is not None:
        late = begins(decision)
        assert said == late or said == pytest.approx(late, rel=0.01, abs=1e-4), sentence(decision)
        for stage in (0.1, 0.7):
            assert begins(decision, stage) <= said * 1.01 + 1e-4, sentence(decision)


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


@settings(max_examples=60)
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


@settings(max_examples=60)
@given(cases(), st.floats(0.0, 1.0))
def test_help_is_asked_for_that_may_come_in_time(case: Case, share: float) -> None:
    """With any start time between the shortest assumed and the measured one."""
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


REPORTS = Arrival(120.0, 60.0, tasks=200)
MAILS = [Arrival(each / 50, 0.01) for each in range(50 * 240)]


@pytest.mark.parametrize(
    ("arrivals", "most"),
    [([*MAILS, REPORTS], 9), ([Arrival(120.0, 0.01, tasks=10_000), REPORTS], 22)],
    ids=["a steady flow", "all at once"],
)
def test_kinds_that_differ_start_in_time_on_few_workers(arrivals: list[Arrival], most: int) -> None:
    """Reports of a minute among e-mails: the mean that e-mails taught is too short for them."""
    tasks, policy = Tasks.of(arrivals), Policy(slots=32, min_replicas=1, max_replicas=40)

    def run(kinds: tuple[float, ...]) -> tuple[float, int]:
        known = Known(handler_seconds=0.01, lead_seconds=15.0, kinds=kinds)
        pilot = Production(policy, replicas=1, start=NOW, known=known)
        found = simulate(tasks, pilot, Plant(tasks, slots=32, lead_seconds=15.0, replicas=1))
        latest = max(map(float.__sub__, found.plant.began, tasks.due))
        return latest, max(look.replicas for look in found.looks)

    latest, workers = run((0.01, 60.0))
    assert latest <= 1
    assert workers <= most
    assert run(())[0] > 10

"""What a decision says comes true when its workers run its tasks, one by one."""

from __future__ import annotations

import re
from math import inf

import pytest
from delayq.contract import Limits
from delayq.scaling import Decision, Policy, Sample, begun, decide, horizons, sentence
from delayq.scaling.load import load
from delayq.scaling.sample import OUTLOOK_SECONDS
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Plant, Tasks
from tests.unit.simulation.strategies import NOW

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
    if "begin them on time" in text:
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


@st.composite
def rushes(draw: st.DrawFn) -> Decision:
    """Rushes far ahead, and few workers allowed."""
    policy = Policy(
        slots=draw(st.sampled_from([1, 10])),
        lateness_seconds=draw(st.sampled_from([1.0, 10.0])),
        max_replicas=draw(st.integers(1, 5)),
        lead_seconds=draw(st.sampled_from([0.0, 11.0])),
    )
    coming = draw(st.lists(st.tuples(st.floats(0.1, 3500.0), st.integers(1, 3000)), min_size=1, max_size=4))
    seen = tuple((at, sum(n for due, n in coming if due <= at)) for at in horizons(policy.window(None)))
    look = Sample(due_within=seen, handler_seconds=draw(st.sampled_from([0.1, 0.5, 3.0])))
    return decide(look, policy, begun(0, NOW), NOW)


def worst(decision: Decision, replicas: int, lead: float) -> float:
    """Return how late the last task of the next hour begins; those of a long stretch come evenly."""
    look, policy = decision.sample, decision.policy
    assert look is not None
    assert look.handler_seconds is not None
    coming = []
    for start, end, amount in load(look, 0.0, OUTLOOK_SECONDS).inflows:
        number = round(amount)
        dues = (start + (end - start) * (each + 1) / number for each in range(number))
        coming += [Arrival(due, look.handler_seconds) for due in dues]
    tasks = Tasks.of(coming)
    plant = Plant(tasks, slots=policy.slots, lead_seconds=lead)
    plant.scale(replicas)
    plant.advance(1e7)
    return max(map(float.__sub__, plant.began, tasks.due), default=0.0)


@given(rushes())
def test_a_shortfall_that_is_told_comes_and_as_many_as_are_said_would_do(decision: Decision) -> None:
    """To a round of handlers, which the model divides."""
    found, policy, look = decision.shortfall, decision.policy, decision.sample
    if found is not None:
        assert look is not None
        round_ = 1.1 * (look.handler_seconds or 0.0)
        late = worst(decision, policy.max_replicas, policy.lead(None))
        assert late + round_ >= found.late_seconds > policy.lateness_seconds
        assert worst(decision, found.needed, 0.0) <= policy.lateness_seconds + round_

"""Policies, samples and histories of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.contract.autoscaling import Behavior, Fallback, ScaleDown, ScaleUp, ScalingPolicy
from delayq.scaling import Policy, Sample, begun, decide, horizons
from hypothesis import strategies as st

if TYPE_CHECKING:
    from delayq.scaling import Memory

NOW = 1_750_000_000.0

windows = st.sampled_from([0, 1, 10, 60, 300])
rules = st.builds(
    ScalingPolicy,
    type=st.sampled_from(["Pods", "Percent"]),
    value=st.integers(1, 10) | st.integers(1, 300),
    period_seconds=st.sampled_from([1, 4, 15, 60]),
)
selections = st.sampled_from(["Max", "Min"])


def some(kind: type[ScaleUp | ScaleDown]) -> st.SearchStrategy[ScaleUp | ScaleDown]:
    return st.builds(
        kind,
        stabilization_window_seconds=windows,
        select_policy=selections,
        policies=st.lists(rules, max_size=2).map(tuple),
    )


behaviors = st.builds(Behavior, scale_up=some(ScaleUp), scale_down=some(ScaleDown))
fallbacks = st.none() | st.builds(Fallback, after_seconds=st.integers(10, 16), replicas=st.integers(0, 30))


@st.composite
def policies(draw: st.DrawFn, behavior: st.SearchStrategy[Behavior] = behaviors) -> Policy:
    most = draw(st.integers(1, 60))
    return Policy(
        slots=draw(st.integers(1, 50)),
        lateness_seconds=draw(st.sampled_from([0.1, 0.5, 1.0, 10.0])),
        percentile=draw(st.sampled_from([50.0, 99.0, 99.9])),
        min_replicas=draw(st.integers(0, most)),
        max_replicas=most,
        lead_seconds=draw(st.none() | st.sampled_from([0.0, 3.0, 15.0, 60.0])),
        period_seconds=draw(st.sampled_from([1.0, 2.0, 10.0])),
        cooldown_seconds=draw(st.sampled_from([0.0, 60.0, 300.0])),
        behavior=draw(behavior),
        fallback=draw(fallbacks),
    )


@st.composite
def looks(draw: st.DrawFn, policy: Policy, *, whole: bool = True) -> Sample:
    lead = draw(st.none() | st.sampled_from([2.0, 11.0, 45.0]))
    rushes = draw(st.lists(st.tuples(st.floats(0.1, 4000), st.integers(1, 5000)), max_size=5))
    more = 0.0 if lead is None else draw(st.sampled_from([0.0, 1.0, 30.0]))
    leads = () if lead is None else ((1, lead), (2, lead + more), (8, lead + 3 * more))
    asked = horizons(policy.window(leads[-1][1] if leads else None))
    return Sample(
        overdue=draw(st.integers(0, 2000)),
        in_flight=draw(st.integers(0, 500)),
        due_within=tuple((each, sum(tasks for at, tasks in rushes if at <= each)) for each in asked),
        next_due_seconds=min((at for at, _ in rushes), default=None),
        fallen_due=draw(st.none() | st.integers(0, 100_000)),
        ready=draw(st.integers(0, 60)),
        starting=draw(st.integers(0, 20)),
        starting_seconds=draw(st.floats(0, 30)),
        handler_seconds=draw(st.none() | st.sampled_from([0.0, 0.01, 0.5, 30.0])),
        kinds=draw(
            st.sampled_from([(), (), ((1.0, 0.5),), ((0.25, 30.0), (0.75, 0.01)), ((0.5, 0.0), (0.5, 3.0))])
        ),
        quickest_seconds=draw(st.none() | st.sampled_from([0.0, 0.01, 3.0])),
        lead_seconds=lead,
        leads=leads,
        soonest_seconds=draw(st.none() | st.sampled_from([1.0, 10.0])),
        whole=whole,
    )


@st.composite
def pasts(draw: st.DrawFn, policy: Policy) -> Memory:
    """Return what some decisions have left behind, the last of them a period ago."""
    seen = draw(st.lists(st.none() | looks(policy), max_size=4))
    memory = begun(draw(st.integers(0, 60)), NOW - policy.period_seconds * (len(seen) + 1))
    for number, look in enumerate(seen):
        memory = decide(look, policy, memory, NOW - policy.period_seconds * (len(seen) - number)).memory
    return memory


@st.composite
def situations(
    draw: st.DrawFn, behavior: st.SearchStrategy[Behavior] = behaviors
) -> tuple[Policy, Sample, Memory]:
    policy = draw(policies(behavior))
    return policy, draw(looks(policy)), draw(pasts(policy))


def more(look: Sample, overdue: int, in_flight: int, rush: tuple[float, int]) -> Sample:
    """Return the same look with more to do."""
    at, tasks = rush
    return replace(
        look,
        overdue=look.overdue + overdue,
        in_flight=look.in_flight + in_flight,
        due_within=tuple((each, seen + (tasks if at <= each else 0)) for each, seen in look.due_within),
    )

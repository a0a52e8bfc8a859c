"""What holds for every decision, policy, sample and history. test_life.py has the bounds."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING

from delayq.contract.autoscaling import Behavior, ScaleDown, ScalingPolicy
from delayq.scaling import Policy, Sample, begun, decide, recorded, replayed, sentence
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scaling.strategies import NOW, looks, more, policies, situations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.scaling import Decision, Memory

UNHINDERED = st.just(Behavior(scale_down=ScaleDown(stabilization_window_seconds=0)))
Situation = tuple[Policy, Sample, "Memory"]


@given(
    situations(),
    st.integers(0, 3000),
    st.integers(0, 500),
    st.tuples(st.floats(0.1, 4000), st.integers(0, 5000)),
)
def test_more_to_do_never_asks_for_fewer(
    situation: Situation, overdue: int, in_flight: int, rush: tuple[float, int]
) -> None:
    policy, look, memory = situation
    less = decide(look, policy, memory, NOW)
    busier = decide(more(look, overdue, in_flight, rush), policy, memory, NOW)
    assert busier.wanted >= less.wanted
    assert busier.replicas >= less.replicas


@given(situations(UNHINDERED))
def test_work_always_has_a_worker(situation: Situation) -> None:
    policy, look, memory = situation
    if look.in_flight or look.overdue or look.within(policy.window(look.lead_seconds)):
        assert decide(look, policy, memory, NOW).replicas >= 1


@given(situations())
def test_a_decision_can_be_made_again_from_its_record(situation: Situation) -> None:
    policy, look, memory = situation
    for seen in (look, None):
        decision = decide(seen, policy, memory, NOW)
        again = replayed(recorded(decision))
        assert again == decision
        assert sentence(again) == sentence(decision)


def chain(policy: Policy, seen: Sequence[Sample | None], start: int) -> list[Decision]:
    """Decide a period apart, long after anything else happened."""
    memory, made = begun(start, NOW - 10_000), []
    for number, look in enumerate(seen):
        made.append(decide(look, policy, memory, NOW + number * policy.period_seconds))
        memory = made[-1].memory
    return made


chains = policies().flatmap(
    lambda policy: st.tuples(
        st.just(policy), st.lists(looks(policy), min_size=1, max_size=12), st.integers(0, policy.max_replicas)
    )
)


@given(chains)
def test_no_scaling_policy_is_exceeded_in_any_period(given_: tuple[Policy, list[Sample | None], int]) -> None:
    policy, seen, start = given_
    made = chain(policy, seen, max(start, policy.min_replicas))
    for rules, sign in ((policy.behavior.scale_up, 1), (policy.behavior.scale_down, -1)):
        if not rules.policies:
            continue
        for decision in made:
            allowed = [reach(rule, decision, made, sign) for rule in rules.policies]
            choose = max if rules.select_policy == "Max" else min
            assert max(0, (decision.replicas - decision.before) * sign) <= max(0, choose(allowed))


def reach(rule: ScalingPolicy, decision: Decision, made: list[Decision], sign: int) -> int:
    """By how many the number may still change: what a period allows less what was used of it."""
    used = sum(
        max(0, (each.replicas - each.before) * sign)
        for each in made
        if decision.at - rule.period_seconds < each.at < decision.at
    )
    first = decision.before - sign * used
    if rule.type == "Pods":
        return rule.value - used
    share = max(1, first) * rule.value / 100
    return (ceil(first + share) - first if sign > 0 else first - max(0, int(first - share))) - used


@given(chains)
def test_stabilization_windows_are_kept(given_: tuple[Policy, list[Sample | None], int]) -> None:
    """A worker that was wanted within scaleDown's window stays; scaleUp adds what was wanted all through its window."""
    policy, seen, start = given_
    made = chain(policy, seen, max(start, policy.min_replicas))
    down = policy.behavior.scale_down.stabilization_window_seconds
    up = policy.behavior.scale_up.stabilization_window_seconds
    for decision in made:
        recent = [each.wanted for each in made if decision.at - down < each.at <= decision.at]
        wanted = max([policy.clamped(each) for each in recent], default=0)
        # The step from one worker to none is the cool-down's.
        if decision.replicas < decision.before and decision.before > 1:
            assert decision.replicas >= min(decision.before, wanted)
        if decision.replicas > decision.before:
            wished = [each for each in decision.previous.recommendations if each.at > decision.at - up]
            assert all(each.replicas >= decision.replicas for each in wished)


@given(situations(), st.data())
@settings(max_examples=30)
def test_a_record_that_was_tampered_with_is_refused_or_decided_on(
    situation: Situation, data: st.DataObject
) -> None:
    record = json.loads(recorded(decide(situation[1], situation[0], situation[2], NOW)))
    part = record[data.draw(st.sampled_from(["sample", "policy", "previous"]))]
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(
        st.sampled_from([None, 0, -1, 1e308, "x", [], {}])
    )
    try:
        found = replayed(json.dumps(record))
    except ValueError:
        return
    assert isinstance(found.replicas, int)

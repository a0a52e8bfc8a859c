"""What holds all through the life of a queue: looks that fail, edits of the spec, hands and clocks that interfere."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from delayq.scaling import Policy, Sample, begun, decide, horizons
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.simulation.strategies import NOW, looks, policies

pauses = st.floats(0, 5) | st.floats(0, 100)


class Life(RuleBasedStateMachine):
    """One queue under one operator."""

    @initialize(policy=policies(), replicas=st.integers(0, 60))
    def begin(self, policy: Policy, replicas: int) -> None:
        self.policy, self.now = policy, NOW
        self.memory = begun(policy.clamped(replicas), NOW)

    @rule(data=st.data(), seconds=pauses)
    def look(self, data: st.DataObject, seconds: float) -> None:
        self.decide(data.draw(looks(self.policy)), seconds)

    @rule(data=st.data(), seconds=pauses)
    def hear_of_some_shards(self, data: st.DataObject, seconds: float) -> None:
        before = self.memory.replicas
        self.decide(data.draw(looks(self.policy, whole=False)), seconds)
        assert self.memory.replicas >= self.policy.clamped(before)

    @rule(seconds=pauses, times=st.integers(1, 4))
    def see_nothing(self, seconds: float, times: int) -> None:
        for _ in range(times):
            before = self.memory.replicas
            self.decide(None, seconds)
            assert self.memory.replicas >= self.policy.clamped(before)

    @rule(bounds=st.tuples(st.integers(0, 60), st.integers(1, 60)))
    def edit(self, bounds: tuple[int, int]) -> None:
        self.policy = replace(self.policy, min_replicas=min(bounds), max_replicas=max(bounds))

    @rule(replicas=st.integers(0, 80))
    def scale_by_hand(self, replicas: int) -> None:
        self.memory = replace(self.memory, replicas=replicas)

    @rule(seconds=st.floats(1, 100_000))
    def step_the_clock_back(self, seconds: float) -> None:
        self.now -= seconds

    @rule()
    def rest_until_all_is_quiet(self) -> None:
        """When nothing is to do for long enough, nobody stays, whatever happened before."""
        behavior = self.policy.behavior.scale_down
        idle = Sample(fallen_due=None)
        longest = max(behavior.stabilization_window_seconds, self.policy.cooldown_seconds)
        slow = max([1.0, *(each.period_seconds for each in behavior.policies)])
        for _ in range(2 + ceil((longest + 1) / 10)):
            self.decide(idle, 10.0)
        for _ in range(85):
            self.decide(idle, slow + 1)
        if all(each.value >= (100 if each.type == "Percent" else 1) for each in behavior.policies):
            assert self.memory.replicas == self.policy.min_replicas

    def decide(self, look: Sample | None, seconds: float) -> None:
        self.now += seconds
        before = self.memory.replicas
        made = decide(look, self.policy, self.memory, self.now)
        self.memory = made.memory
        assert self.policy.min_replicas <= made.replicas <= self.policy.max_replicas
        if made.limited_by == "ScaleUpPolicy":
            assert made.replicas >= self.policy.clamped(before)
        if made.limited_by == "ScaleDownPolicy":
            assert made.replicas <= self.policy.clamped(before)
        if look is not None:
            busy = ceil(look.in_flight / self.policy.slots)
            assert made.replicas >= min(busy, self.policy.clamped(before))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)

leads = st.floats(0.1, 5000)


def rush(at: float, lead: float, policy: Policy) -> Sample:
    asked = horizons(policy.window(lead))
    seen = tuple((each, 500 if at <= each else 0) for each in asked)
    return Sample(due_within=seen, lead_seconds=lead, handler_seconds=0.5, next_due_seconds=at)


@given(leads)
def test_a_rush_in_the_window_is_never_missed_however_long_the_lead(lead: float) -> None:
    """The next look is a period later: who is asked for then comes in time for what this one does not see."""
    policy = Policy(slots=10, max_replicas=100)
    for at in (lead, policy.window(lead)):
        assert decide(rush(at, lead, policy), policy, begun(0, NOW), NOW).wanted >= 25


@given(leads)
def test_a_rush_beyond_the_window_asks_for_nobody(lead: float) -> None:
    policy = Policy(slots=10, max_replicas=100)
    later = rush(policy.window(lead) * 1.002, lead, policy)
    assert decide(later, policy, begun(0, NOW), NOW).wanted == 0

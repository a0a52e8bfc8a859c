"""What holds of all decisions on a queue in turn: failed looks, edits, scaling by hand, clocks that step back."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from delayq.scaling import Policy, Sample, begun, decide
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.scaling.strategies import NOW, looks, policies

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
        """Without work for long enough, minReplicas are left, after any history."""
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
TestLife.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)

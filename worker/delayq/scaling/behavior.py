"""How fast the number of workers may change: the behavior of HPA v2, with its terms and arithmetic. Pure.

Source: the stabilization windows and policies of autoscaling/v2. Intended differences: from zero, a percentage counts
from one; without policies there is no limit; the cool-down alone decides about the step from one worker to none.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from delayq.scaling.memory import Change, Recommendation

if TYPE_CHECKING:
    from delayq.contract.autoscaling import Behavior, ScaleDown, ScaleUp, ScalingPolicy
    from delayq.scaling.memory import Memory


def stabilized(wanted: int, memory: Memory, behavior: Behavior, now: float) -> int:
    """Scale up to the minimum of the scaleUp window's recommendations, down to the maximum of scaleDown's."""
    current = memory.replicas
    up = min([wanted, *_within(memory, behavior.scale_up.stabilization_window_seconds, now)])
    down = max([wanted, *_within(memory, behavior.scale_down.stabilization_window_seconds, now)])
    return min(max(current, up), down)


def _within(memory: Memory, seconds: float, now: float) -> list[int]:
    return [each.replicas for each in memory.recommendations if _recent(each.at, seconds, now)]


def _recent(at: float, seconds: float, now: float) -> bool:
    """Whether a time is in the last `seconds`; a time in the future is from before a step back of the clock."""
    return now - seconds < at <= now


def most(memory: Memory, rules: ScaleUp, now: float) -> float:
    """Return the largest number that the policies allow, at least the current one."""
    return max(memory.replicas, _limit(memory, rules, now, 1))


def fewest(memory: Memory, rules: ScaleDown, now: float) -> float:
    """Return the smallest number that the policies allow, at most the current one."""
    return min(memory.replicas, _limit(memory, rules, now, -1))


def _limit(memory: Memory, rules: ScaleUp | ScaleDown, now: float, sign: int) -> float:
    if rules.select_policy == "Disabled":
        return memory.replicas
    if not rules.policies:
        return inf * sign
    steps = [_reach(memory, policy, now, sign) for policy in rules.policies]
    farthest = max if sign > 0 else min
    nearest = min if sign > 0 else max
    return farthest(steps) if rules.select_policy == "Max" else nearest(steps)


def _reach(memory: Memory, policy: ScalingPolicy, now: float, sign: int) -> int:
    """Return the number that one policy allows, relative to the start of its period."""
    start = memory.replicas
    for change in memory.changes:
        moved = change.after - change.before
        if _recent(change.at, policy.period_seconds, now) and moved * sign > 0:
            start -= moved
    if policy.type == "Pods":
        return start + sign * policy.value
    share = max(1, start) * policy.value / 100
    return ceil(start + share) if sign > 0 else max(0, int(start - share))


def recommended(wanted: int, memory: Memory, behavior: Behavior, now: float) -> tuple[Recommendation, ...]:
    """Return the recommendations of the longer window; of equal consecutive ones, only the first and last."""
    up, down = behavior.scale_up, behavior.scale_down
    longest = max(up.stabilization_window_seconds, down.stabilization_window_seconds)
    kept = [each for each in memory.recommendations if _recent(each.at, longest, now)]
    if len(kept) > 1 and kept[-1].replicas == kept[-2].replicas == wanted:
        kept.pop()
    return (*kept, Recommendation(now, wanted))


def changed(replicas: int, memory: Memory, behavior: Behavior, now: float) -> tuple[Change, ...]:
    """Return the changes within the longest period of a policy."""
    policies = (*behavior.scale_up.policies, *behavior.scale_down.policies)
    longest = max((policy.period_seconds for policy in policies), default=0)
    kept = tuple(change for change in memory.changes if _recent(change.at, longest, now))
    if replicas == memory.replicas or not longest:
        return kept
    return (*kept, Change(now, memory.replicas, replicas))

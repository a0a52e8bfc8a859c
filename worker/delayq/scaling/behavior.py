"""How fast the number of workers may change: HPA v2's behavior, in its words and with its arithmetic. Pure.

Source: the stabilization windows and policies of autoscaling/v2. Different on purpose: from zero, a percentage counts
from one; without policies there is no limit; the step from one worker to none belongs to the cool-down.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from delayq.scaling.memory import Change, Recommendation

if TYPE_CHECKING:
    from delayq.contract.autoscaling import Behavior, ScaleDown, ScaleUp, ScalingPolicy
    from delayq.scaling.memory import Memory


def stabilized(wanted: int, memory: Memory, behavior: Behavior, now: float) -> int:
    """Go up only as far as every decision of the one window asked for, down only as far as every one of the other."""
    current = memory.replicas
    up = min([wanted, *_within(memory, behavior.scale_up.stabilization_window_seconds, now)])
    down = max([wanted, *_within(memory, behavior.scale_down.stabilization_window_seconds, now)])
    return min(max(current, up), down)


def _within(memory: Memory, seconds: float, now: float) -> list[int]:
    return [each.replicas for each in memory.recommendations if _recent(each.at, seconds, now)]


def _recent(at: float, seconds: float, now: float) -> bool:
    """Whether something was less than so long ago; what is in the future was written before a clock stepped back."""
    return now - seconds < at <= now


def most(memory: Memory, rules: ScaleUp, now: float) -> float:
    """Return the largest number that the policies allow; never fewer than there are."""
    return max(memory.replicas, _limit(memory, rules, now, 1))


def fewest(memory: Memory, rules: ScaleDown, now: float) -> float:
    """Return the smallest number that the policies allow; never more than there are."""
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
    """How far one policy lets the number go from where its period began."""
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
    """Return the recommendations that can still matter: as old as the longer window, and no more than tell a change."""
    up, down = behavior.scale_up, behavior.scale_down
    longest = max(up.stabilization_window_seconds, down.stabilization_window_seconds)
    kept = [each for each in memory.recommendations if _recent(each.at, longest, now)]
    if len(kept) > 1 and kept[-1].replicas == kept[-2].replicas == wanted:
        kept.pop()  # the same all along: its ends are enough
    return (*kept, Recommendation(now, wanted))


def changed(replicas: int, memory: Memory, behavior: Behavior, now: float) -> tuple[Change, ...]:
    """Return the changes that a policy can still ask for."""
    policies = (*behavior.scale_up.policies, *behavior.scale_down.policies)
    longest = max((policy.period_seconds for policy in policies), default=0)
    kept = tuple(change for change in memory.changes if _recent(change.at, longest, now))
    if replicas == memory.replicas or not longest:
        return kept
    return (*kept, Change(now, memory.replicas, replicas))

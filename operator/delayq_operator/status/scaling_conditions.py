"""What there is to say of the number of workers, and of what it does for the tasks: a condition each. Pure.

Each function answers one question. Not here: how many workers there should be (scaling.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.scaling.sentences import clock, counted, seconds

from delayq_operator.scaling import scaling
from delayq_operator.status.reasons import told
from delayq_operator.status.view import WINDOW_SECONDS, Begun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View


def scaling_active(view: View) -> Condition:
    """Whether the number of workers follows the work."""
    if view.scale is None or view.scale.reason == scaling.NOT_DECIDED:
        return told("ScalingActive", scaling.NOT_DECIDED, "No scaling decision has been made yet.")
    return told("ScalingActive", view.scale.reason, f"{view.scale.message}.")


BINDS: Final[Mapping[str, str]] = {
    "MaxReplicas": "All workers that spec.autoscaling.maxReplicas allows are at work: raise it.",
    "ScaleUpPolicy": "spec.autoscaling.behavior.scaleUp lets the number of workers rise no faster.",
}
"""What limits a decision, which is the reason that tasks are late → what helps."""

FULL_SHARE: Final = 0.9
"""Of maxInFlight. Tasks are spread by the hash of their ids: one shard has used up its part before another."""

LIMITED: Final[Mapping[str, str]] = {
    "MaxReplicas": "The work needs more workers than spec.autoscaling.maxReplicas allows.",
    "MinReplicas": "The work needs fewer workers than spec.autoscaling.minReplicas.",
    "ScaleUpPolicy": "spec.autoscaling.behavior.scaleUp lets the number rise no faster.",
    "MaxInFlight": "spec.limits.maxInFlight lets no more tasks run: more workers would idle.",
    "RatePerSecond": "spec.limits.ratePerSecond lets no more tasks begin: more workers would idle.",
    "ScaleDownPolicy": "spec.autoscaling.behavior.scaleDown lets the number fall no faster.",
}
"""What limits a decision, as in status.scaling.limitedBy, → message; what only delays it, such as a cool-down, is no
limit."""


def scaling_limited(view: View) -> Condition:
    """Whether a bound kept the number of workers from what the work asks for."""
    if (decision := view.decision) is not None and decision.limited_by in LIMITED:
        return told("ScalingLimited", decision.limited_by, LIMITED[decision.limited_by])
    return told("ScalingLimited", "DesiredWithinRange", "No limit keeps the number of workers from demand.")


def fallback_active(view: View) -> Condition | None:
    """Say that the number of workers is a fallback, as the metrics for a decision are missing. None otherwise."""
    decision = view.decision
    if decision is None or decision.reason != "FallenBack":
        return None
    message = f"Metrics are unavailable: at least {counted(decision.replicas, 'worker')}, by spec.autoscaling.fallback."
    why = f"Last error: {view.unread}." if view.unread else "No scanner reports every shard."
    return told("FallbackActive", "MetricsUnavailable", f"{message} {why}")


def capacity_shortfall_expected(view: View) -> Condition | None:
    """Say that more tasks fall due at once than the most workers allowed can begin in time. None otherwise."""
    rush = view.learnt.rush
    if rush is None:
        return None
    message = (
        f"From {clock(rush.at)} on tasks begin up to {seconds(rush.late_seconds)} late, even with maxReplicas:"
        f" {counted(rush.needed, 'worker')} would be in time."
    )
    return told("CapacityShortfallExpected", "MaxReplicas", message)


def objective_met(view: View) -> Condition | None:
    """Whether as many tasks as the percentile asks for start in time: those that began of late, and those that wait.

    How late they are is in status.backlog: here it would be another message each time. None while the spec is invalid.
    """
    kind = "ObjectiveMet"
    if view.queue is None:
        return None
    if view.backlog is None or not view.backlog.whole:
        return told(kind, "MetricsUnavailable", "No scanner reports the backlog.")
    objective = view.queue.spec.objective
    allowed, share = objective.lateness_seconds, objective.late_percent
    waiting = view.backlog.waiting_late(allowed)
    late = f"{share:g} % of the tasks of the last {WINDOW_SECONDS / 60:g} min were late by more than {allowed:g} s"
    if not (view.begun + Begun(waiting, waiting)).missed(objective.percent):
        return told(kind, "WithinObjective", f"At most {late}.")
    reason, cure = _what_binds(view) if waiting else ("TasksLate", "No task waits for that long now.")
    return told(kind, reason, f"More than {late}, or still are (DUE, LATENESS). {cure}")


def _what_binds(view: View) -> tuple[str, str]:
    """Why tasks are late: the first cause there is, and what helps."""
    decision, paced = view.decision, _paced(view)
    if view.guarding.down:
        return "GuardUnreachable", "No worker can use the guard: see condition GuardAvailable."
    if view.worker.ready < view.worker.wanted:
        ready = f"{view.worker.ready} of {counted(view.worker.wanted, 'worker')} are ready"
        return "WorkersNotReady", f"{ready}: {view.troubles.get('worker', 'they may still be starting')}."
    if paced is not None:
        return paced
    if view.backlog is not None and not view.backlog.in_flight and view.worker.ready:
        return "NoTasksClaimed", "Workers are ready and claim no tasks: see their /readyz and logs."
    if decision is None or decision.limited_by not in BINDS:
        return "TasksLate", "More workers or concurrency help, or quicker handlers."
    return decision.limited_by, BINDS[decision.limited_by]


def _paced(view: View) -> tuple[str, str] | None:
    """Whether spec.limits may be what keeps tasks. Under a rate, workers that hold nothing are nothing odd."""
    if view.queue is None or view.backlog is None:
        return None
    limits = view.queue.spec.limits
    if limits.max_in_flight is not None and view.backlog.in_flight >= limits.max_in_flight * FULL_SHARE:
        return "MaxInFlight", "As many tasks run as spec.limits.maxInFlight allows: raise it."
    if limits.rate_per_second is not None:
        message = "spec.limits.ratePerSecond lets no more begin, or workers cannot keep up with it."
        return "RatePerSecond", message
    return None

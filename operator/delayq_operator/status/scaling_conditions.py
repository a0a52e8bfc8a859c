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
        return told("ScalingActive", scaling.NOT_DECIDED, "No decision was made yet.")
    return told("ScalingActive", view.scale.reason, f"{view.scale.message}.")


BINDS: Final[Mapping[str, tuple[str, str]]] = {
    "MaxReplicas": (
        "TooManyReplicas",
        "All workers that spec.autoscaling.maxReplicas allows are at work: raise it.",
    ),
    "ScaleUpPolicy": (
        "ScaleUpLimit",
        "spec.autoscaling.behavior.scaleUp lets the number of workers rise no faster.",
    ),
}
"""What limits a decision → why tasks are late, and what helps."""

LATE: Final = ("Late", "More workers or concurrency help, or quicker handlers.")

FULL_SHARE: Final = 0.9
"""Of maxInFlight. Tasks are spread by the hash of their ids: one shard has used up its part before another."""

LIMITED: Final[Mapping[str, tuple[str, str]]] = {
    "MaxReplicas": (
        "TooManyReplicas",
        "The work asks for more workers than spec.autoscaling.maxReplicas allows.",
    ),
    "MinReplicas": ("TooFewReplicas", "The work asks for fewer workers than spec.autoscaling.minReplicas."),
    "ScaleUpPolicy": ("ScaleUpLimit", "spec.autoscaling.behavior.scaleUp lets the number rise no faster."),
    "MaxInFlight": (
        "InFlightLimit",
        "spec.limits.maxInFlight lets no more tasks run: more workers would idle.",
    ),
    "RatePerSecond": (
        "RateLimit",
        "spec.limits.ratePerSecond lets no more tasks begin: more workers would idle.",
    ),
    "ScaleDownPolicy": ("ScaleDownLimit", "spec.autoscaling.behavior.scaleDown lets it fall no faster."),
}
"""What limits a decision → reason and message; what only delays it, such as a cool-down, is no limit."""


def scaling_limited(view: View) -> Condition:
    """Whether a bound kept the number of workers from what the work asks for."""
    decision = view.scale.decision if view.scale is not None else None
    limited = LIMITED.get(decision.limited_by) if decision is not None else None
    if limited is not None:
        return told("ScalingLimited", *limited)
    return told("ScalingLimited", "DesiredWithinRange", "No bound keeps the number of workers from demand.")


def fallback_active(view: View) -> Condition:
    """Whether the number of workers is a substitute for one that could not be decided."""
    kind = "FallbackActive"
    decision = view.scale.decision if view.scale is not None else None
    if decision is None or decision.reason != "FallenBack":
        return told(kind, "NotNeeded", "No fallback is in use.")
    message = f"Metrics cannot be read: at least {counted(decision.replicas, 'worker')}, by spec.autoscaling.fallback."
    return told(kind, "MetricsUnavailable", f"{message} {_unread(view)}")


def _unread(view: View) -> str:
    return f"The last complaint: {view.unread}." if view.unread else "No scanner has told of every shard."


def capacity_shortfall_expected(view: View) -> Condition:
    """Whether more falls due at once than the most workers allowed can begin in time."""
    kind = "CapacityShortfallExpected"
    if view.learnt.rush is not None:
        rush = view.learnt.rush
        message = (
            f"From {clock(rush.at)} on tasks begin up to {seconds(rush.late_seconds)} late, even with maxReplicas:"
            f" {counted(rush.needed, 'worker')} would be in time."
        )
        return told(kind, "TooFewReplicasAllowed", message)
    if view.scale is None or view.scale.decision is None or view.scale.decision.sample is None:
        message = "Nobody looks ahead: metrics cannot be read, or spec.autoscaling does not have the operator decide."
        return told(kind, "NotForecast", message)
    return told(
        kind,
        "CapacitySuffices",
        "The look ahead shows no rush in the next hour that maxReplicas could not begin in time.",
    )


def objective_met(view: View) -> Condition:
    """Whether as many tasks as the percentile asks for start in time: those that began of late, and those that wait.

    How late they are is in status.backlog: here it would be another message each time.
    """
    kind = "ObjectiveMet"
    if view.backlog is None or not view.backlog.whole or view.queue is None:
        return told(kind, "NotMeasured", "No scanner tells what is due.")
    objective = view.queue.spec.objective
    allowed, share = objective.lateness_seconds, 100 - objective.percentile
    waiting = view.backlog.waiting_late(allowed)
    late = (
        f"{share} % of the tasks of the last {WINDOW_SECONDS / 60:g} min were late by more than {allowed} s"
    )
    if not (view.begun + Begun(waiting, waiting)).missed(objective.percentile):
        return told(kind, "OnTime", f"At most {late}.")
    reason, cure = _what_binds(view) if waiting else ("Late", "No task waits for that long now.")
    return told(kind, reason, f"More than {late}, or still are (DUE, LATENESS). {cure}")


def _what_binds(view: View) -> tuple[str, str]:
    """Why tasks are late: the first cause there is, and what helps."""
    decision = view.scale.decision if view.scale is not None else None
    paced = _paced(view)
    if view.guarding.down:
        return "GuardUnreachable", "No worker can use the guard: see condition GuardAvailable."
    if view.worker.ready < view.worker.wanted:
        why = view.troubles.get("worker", "they may still be starting")
        return (
            "WorkersNotReady",
            f"{view.worker.ready} of {counted(view.worker.wanted, 'worker')} are ready: {why}.",
        )
    if paced is not None:
        return paced
    if view.backlog is not None and not view.backlog.in_flight and view.worker.ready:
        return "NothingClaimed", "Workers are ready and claim nothing: see their /readyz and logs."
    return BINDS.get("None" if decision is None else decision.limited_by, LATE)


def _paced(view: View) -> tuple[str, str] | None:
    """Whether spec.limits may be what keeps tasks. Under a rate, workers that hold nothing are nothing odd."""
    if view.queue is None or view.backlog is None:
        return None
    limits = view.queue.spec.limits
    if limits.max_in_flight is not None and view.backlog.in_flight >= limits.max_in_flight * FULL_SHARE:
        return "InFlightLimit", "As many tasks run as spec.limits.maxInFlight allows: raise it."
    if limits.rate_per_second is not None:
        return "RateLimit", "spec.limits.ratePerSecond lets no more begin, or workers cannot keep up with it."
    return None

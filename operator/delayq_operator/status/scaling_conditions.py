"""Conditions of scaling and of the lateness objective. Pure: each function decides one condition.

Not here: the number of workers (scaling.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.scaling.sentences import clock, counted, seconds

from delayq_operator.scaling import scaling
from delayq_operator.scrape.lateness import WINDOW_SECONDS, StartedTasks
from delayq_operator.status.reasons import condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View


def scaling_active(view: View) -> Condition:
    """Whether the number of workers follows demand."""
    if view.scale is None or view.scale.reason == scaling.NOT_DECIDED:
        return condition("ScalingActive", scaling.NOT_DECIDED, "No scaling decision has been made yet.")
    return condition("ScalingActive", view.scale.reason, f"{view.scale.message}.{_last_error(view)}")


def _last_error(view: View) -> str:
    """Return why the metrics are missing, of a number of workers that is a fallback."""
    if view.scale is None or view.scale.reason != "FallbackActive":
        return ""
    return f" Last error: {view.unread}." if view.unread else " No scanner reports every shard."


BINDS: Final[Mapping[str, str]] = {
    "MaxReplicas": "All workers that spec.autoscaling.maxReplicas allows are running: raise it.",
    "ScaleUpPolicy": "spec.autoscaling.behavior.scaleUp lets the number of workers rise no faster.",
}
"""Limit of a decision that makes tasks late → remedy."""

FULL_SHARE: Final = 0.9
"""Of maxInFlight. Hashing of IDs is uneven: one shard uses up its quota before another."""

LIMITED: Final[Mapping[str, str]] = {
    "MaxReplicas": "The tasks need more workers than spec.autoscaling.maxReplicas allows.",
    "MinReplicas": "The tasks need fewer workers than spec.autoscaling.minReplicas.",
    "ScaleUpPolicy": "spec.autoscaling.behavior.scaleUp lets the number rise no faster.",
    "MaxInFlight": "spec.limits.maxInFlight lets no more tasks run: more workers would idle.",
    "RatePerSecond": "spec.limits.ratePerSecond lets no more tasks start: more workers would idle.",
    "ScaleDownPolicy": "spec.autoscaling.behavior.scaleDown lets the number fall no faster.",
}
"""status.scaling.limitedBy → message. A mere delay, such as the cool-down, is not a limit."""


def scaling_limited(view: View) -> Condition:
    """Whether a limit keeps the number of workers from demand."""
    if (decision := view.decision) is not None and decision.limited_by in LIMITED:
        return condition("ScalingLimited", decision.limited_by, LIMITED[decision.limited_by])
    return condition(
        "ScalingLimited", "DesiredWithinRange", "No limit keeps the number of workers from demand."
    )


def capacity_shortfall_expected(view: View) -> Condition | None:
    """Return the condition while a rush is forecast that maxReplicas workers cannot start in time; else None."""
    rush = view.observed.rush
    if rush is None:
        return None
    message = (
        f"From {clock(rush.at)} on tasks start up to {seconds(rush.late_seconds)} late, even with maxReplicas:"
        f" {counted(rush.needed, 'worker')} would start them in time."
    )
    return condition("CapacityShortfallExpected", "MaxReplicas", message)


def objective_met(view: View) -> Condition | None:
    """Whether the percentile of tasks starts in time, of those that started in the window and those that wait.

    Their lateness is in status.backlog: here it would change the message each time. None while the spec is invalid.
    """
    kind = "ObjectiveMet"
    if view.queue is None:
        return None
    if view.backlog is None or not view.backlog.whole:
        return condition(kind, "MetricsUnavailable", "No scanner reports the backlog.")
    objective = view.queue.spec.objective
    allowed, share = objective.lateness_seconds, objective.late_percent
    waiting = view.backlog.waiting_late(allowed)
    late = f"{share:g} % of the tasks of the last {WINDOW_SECONDS / 60:g} min were late by more than {allowed:g} s"
    if not (view.workers.started + StartedTasks(waiting, waiting)).missed(objective.percent):
        return condition(kind, "WithinObjective", f"At most {late}.")
    reason, cure = _what_binds(view) if waiting else ("TasksLate", "No task waits for that long now.")
    return condition(kind, reason, f"More than {late}, or still are (DUE, OLDEST-DUE). {cure}")


def _what_binds(view: View) -> tuple[str, str]:
    """Return the first cause of late tasks: reason, and message with the remedy."""
    decision, paced = view.decision, _paced(view)
    if (stopped := _stopped(view)) is not None:
        return stopped
    if view.worker.ready < view.worker.wanted:
        ready = f"{view.worker.ready} of {counted(view.worker.wanted, 'worker')} are ready"
        why = view.troubles.get("worker") or view.waiting.get("worker") or "they may still be starting"
        return "WorkersNotReady", f"{ready}: {why}."
    if paced is not None:
        return paced
    if view.backlog is not None and not view.backlog.in_flight and view.worker.ready:
        return "NoTasksClaimed", "Workers are ready and claim no tasks: see their /readyz and logs."
    if decision is None or decision.limited_by not in BINDS:
        return "TasksLate", "More workers or concurrency help, or faster handlers."
    return decision.limited_by, BINDS[decision.limited_by]


def _stopped(view: View) -> tuple[str, str] | None:
    """Return reason and message if workers may claim nothing."""
    if message := view.suspension.message:
        return "Suspended", f"{message}: no task is claimed."
    if view.workers.guard.down:
        return "GuardUnreachable", "No worker can use the guard: see condition GuardAvailable."
    return None


def _paced(view: View) -> tuple[str, str] | None:
    """Return reason and message if spec.limits may delay tasks. With a rate limit, idle workers are normal."""
    if view.queue is None or view.backlog is None:
        return None
    limits = view.queue.spec.limits
    if limits.max_in_flight is not None and view.backlog.in_flight >= limits.max_in_flight * FULL_SHARE:
        return "MaxInFlight", "As many tasks run as spec.limits.maxInFlight allows: raise it."
    if limits.rate_per_second is not None:
        message = "spec.limits.ratePerSecond lets no more start, or workers cannot keep up with it."
        return "RatePerSecond", message
    return None

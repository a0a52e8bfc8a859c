"""Every reason there is, and every condition but Ready (readiness.py), decided from what was seen. Pure.

docs/operator.md lists them, a test compares.

Each function answers one question. Unknown means that nobody could tell, never that nobody asked. A reason stands for
one status only, so that people can look for either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq.scaling.sentences import clock, seconds

from delayq_operator import scaling
from delayq_operator.words import OUTAGES, RISKS, listed, pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq_operator.view import View

Status = Literal["True", "False", "Unknown"]
_TRUE: Final = "True"
_FALSE: Final = "False"
_UNKNOWN: Final = "Unknown"

REASONS: Final[Mapping[str, Mapping[str, Status]]] = {
    "Ready": {
        "AsExpected": _TRUE,
        "Deleting": _FALSE,
        "InvalidSpec": _FALSE,
        "ReferenceNotFound": _FALSE,
        "Unreachable": _FALSE,
        "ScannersNotReady": _FALSE,
        "Held": _FALSE,
        "NoWorkers": _FALSE,
        "WorkersNotReady": _FALSE,
    },
    "Accepted": {"Valid": _TRUE, "InvalidSpec": _FALSE, "ReferenceNotFound": _FALSE},
    "BackendAvailable": {
        "Connected": _TRUE,
        "ScannersReady": _TRUE,
        "Unreachable": _FALSE,
        "NoScanners": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "DurabilityAtRisk": {
        **{reason: _TRUE for reason, _ in RISKS.values()},
        "Durable": _FALSE,
        "NotTold": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "Progressing": {
        "NewReplicaSetAvailable": _TRUE,
        "ReplicaSetUpdated": _TRUE,
        "WaitingForDeletion": _TRUE,
        "Erasing": _TRUE,
        "ProgressDeadlineExceeded": _FALSE,
        "NotStarted": _FALSE,
    },
    "Degraded": {
        "NameTaken": _TRUE,
        "ApplyFailed": _TRUE,
        "QueueShared": _TRUE,
        "ForeignFields": _TRUE,
        "EraseFailed": _TRUE,
        "PodsFailing": _TRUE,
        "AsExpected": _FALSE,
    },
    "ScalingActive": {
        **{reason: _TRUE if active else _FALSE for reason, active in scaling.REASONS.items()},
        scaling.NOT_DECIDED: _UNKNOWN,
    },
    "ScalingLimited": {
        "TooManyReplicas": _TRUE,
        "TooFewReplicas": _TRUE,
        "ScaleUpLimit": _TRUE,
        "ScaleDownLimit": _TRUE,
        "DesiredWithinRange": _FALSE,
    },
    "FallbackActive": {"MetricsUnavailable": _TRUE, "NotNeeded": _FALSE},
    "CapacityShortfallExpected": {
        "TooFewReplicasAllowed": _TRUE,
        "CapacitySuffices": _FALSE,
        "NotForecast": _UNKNOWN,
    },
    "ObjectiveMet": {
        "OnTime": _TRUE,
        "WorkersNotReady": _FALSE,
        "NothingClaimed": _FALSE,
        "TooManyReplicas": _FALSE,
        "ScaleUpLimit": _FALSE,
        "Late": _FALSE,
        "NotMeasured": _UNKNOWN,
    },
    "Paused": {"PausedByAnnotation": _TRUE, "InvalidAnnotation": _FALSE, "Reconciling": _FALSE},
}
"""Condition → reason → the status it stands for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is true, false or unknown, and why."""

    type: str
    status: Status
    reason: str
    message: str


def told(kind: str, reason: str, message: str) -> Condition:
    """Make a condition; its status follows from the reason."""
    return Condition(kind, REASONS[kind][reason], reason, message)


def accepted(view: View) -> Condition:
    """Whether the document makes sense and what it refers to is there."""
    kind = "Accepted"
    if view.problems:
        found = "; ".join(f"{problem.path}: {problem.message}" for problem in view.problems)
        return told(kind, "InvalidSpec", f"{found}. Nothing was changed; correct the spec.")
    if view.missing:
        namespace = view.resource.key.namespace
        message = f"{listed(view.missing)} not found in namespace {namespace}. Pods start once created."
        return told(kind, "ReferenceNotFound", message)
    return told(kind, "Valid", f"The spec is valid and what it refers to exists.{_unserved(view)}")


def _unserved(view: View) -> str:
    what = "is not served by this cluster, or not to this operator"
    return f" spec.monitoring asks for what {what}: {listed(view.unserved)}." if view.unserved else ""


def backend_available(view: View) -> Condition:
    """Whether the scanners reach Redis."""
    kind = "BackendAvailable"
    if view.backlog is not None and view.backlog.redis_up:
        return told(kind, "Connected", "Scanners reach Redis.")
    if view.backlog is not None:
        message = f"Scanners run and Redis does not serve them: {OUTAGES.get(view.backlog.outage, OUTAGES['other'])}."
        return told(kind, "Unreachable", message)
    if view.scanner.ready:
        message = f"Scanners are ready, which takes Redis; their metrics could not be read: {view.unread or 'not yet'}."
        return told(kind, "ScannersReady", message)
    if view.scanner.exists and view.scanner.wanted == 0:
        return told(kind, "NoScanners", "spec.scanner.replicas is 0: nobody measures.")
    return told(kind, "NotMeasured", "No scanner has answered yet.")


def durability_at_risk(view: View) -> Condition:
    """Whether Redis is set up to keep what it is given."""
    kind = "DurabilityAtRisk"
    if view.backlog is None or not view.backlog.redis_up:
        return told(kind, "NotMeasured", "No scanner has told yet how Redis is set up.")
    known = [risk for risk in RISKS if risk in view.backlog.risks]
    if known:
        return told(kind, RISKS[known[0]][0], " ".join(RISKS[risk][1] for risk in known))
    if view.backlog.risks:
        return told(kind, "NotTold", "Redis does not tell how it is set up (INFO or CONFIG is refused).")
    return told(kind, "Durable", "Redis keeps an append-only file and evicts nothing.")


def progressing(view: View) -> Condition:
    """Whether pods are being replaced, in the words of Deployments."""
    kind = "Progressing"
    loads = (("scanner", view.scanner), ("worker", view.worker))
    if view.erasing is not None:
        return told(kind, "Erasing", view.erasing.message or "The tasks are being erased.")
    for what, load in loads:
        if load.stuck:
            return told(kind, "ProgressDeadlineExceeded", f"{what}: {load.stuck}")
    if view.leaving:
        message = f"Waiting until {listed(view.leaving)} of an earlier DelayQueue of this name is gone."
        return told(kind, "WaitingForDeletion", message)
    for what, load in loads:
        if load.exists and load.rolling:
            running = min(load.updated, load.available)
            message = f"{running} of {pods(load.wanted, what)} run what the spec asks for."
            return told(kind, "ReplicaSetUpdated", message)
    missing = [f"{what}s" for what, load in loads if not load.exists]
    if missing:
        return told(kind, "NotStarted", f"There is no Deployment of {' and '.join(missing)}.")
    return told(kind, "NewReplicaSetAvailable", "All pods run what the spec asks for.")


def degraded(view: View) -> Condition:
    """Whether something needs a person; the worst of it."""
    for reason, what in (
        ("EraseFailed", view.erasing.message if view.erasing is not None and view.erasing.failed else ""),
        ("NameTaken", taken(view)),
        ("ApplyFailed", " ".join(view.failures)),
        ("QueueShared", _shared(view)),
        ("ForeignFields", _foreign(view)),
        ("PodsFailing", f"{listed(list(view.troubles.values()))}.{no_image(view)}" if view.troubles else ""),
    ):
        if what:
            return told("Degraded", reason, what)
    return told("Degraded", "AsExpected", "Nothing needs attention.")


def no_image(view: View) -> str:
    """Say what workers lack when they do not find their code; empty when it is not that."""
    spec = view.queue.spec if view.queue else None
    if spec is None or spec.handler.python is None or spec.worker.image:
        return ""
    if "no module" not in view.troubles.get("worker", ""):
        return ""
    return " Workers run the operator's image, without your code: set spec.worker.image."


def taken(view: View) -> str:
    """Say which names of children others have; empty when none."""
    cure = "exists and is not ours: rename or delete it, or rename this DelayQueue."
    return f"{listed(view.taken)} {cure}" if view.taken else ""


def _shared(view: View) -> str:
    cure = "give each a spec.queueName, keyPrefix or database of its own, unless one code is to handle both's tasks."
    return f"{listed(view.sharing)} has the same queue in the same Redis: {cure}" if view.sharing else ""


def _foreign(view: View) -> str:
    cure = "remove it, or add it to the template in the spec."
    return f"Somebody added {listed(view.foreign)}: {cure}" if view.foreign else ""


def scaling_active(view: View) -> Condition:
    """Whether the number of workers follows the work."""
    if view.scale is None or view.scale.reason == scaling.NOT_DECIDED:
        return told("ScalingActive", scaling.NOT_DECIDED, "No decision was made yet.")
    return told("ScalingActive", view.scale.reason, f"{view.scale.message}.")


LIMITED: Final[Mapping[str, tuple[str, str]]] = {
    "MaxReplicas": (
        "TooManyReplicas",
        "The work asks for more workers than spec.autoscaling.maxReplicas allows.",
    ),
    "MinReplicas": ("TooFewReplicas", "The work asks for fewer workers than spec.autoscaling.minReplicas."),
    "ScaleUpPolicy": ("ScaleUpLimit", "spec.autoscaling.behavior.scaleUp lets the number rise no faster."),
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
    message = (
        f"Metrics cannot be read: at least {pods(decision.replicas, 'worker')}, by spec.autoscaling.fallback."
    )
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
            f" {pods(rush.needed, 'worker')} would be in time."
        )
        return told(kind, "TooFewReplicasAllowed", message)
    if view.scale is None or view.scale.decision is None or view.scale.decision.sample is None:
        message = "Nobody looks ahead: metrics cannot be read, or spec.autoscaling does not have the operator decide."
        return told(kind, "NotForecast", message)
    return told(
        kind, "CapacitySuffices", "In the next hour, no more falls due at once than maxReplicas can begin."
    )


def objective_met(view: View) -> Condition:
    """Whether tasks start in time. How late is in status.backlog: here it would be another message each time."""
    kind = "ObjectiveMet"
    if view.backlog is None or not view.backlog.whole or view.queue is None:
        return told(kind, "NotMeasured", "No scanner has told yet what is due.")
    allowed = view.queue.spec.objective.lateness_seconds
    if not view.backlog.late(allowed):
        return told(kind, "OnTime", f"No task has been due for more than {allowed} s.")
    reason, cure = _what_binds(view)
    return told(kind, reason, f"Tasks have been due for more than {allowed} s (DUE, LATENESS). {cure}")


def _what_binds(view: View) -> tuple[str, str]:
    """Why tasks are late: the first cause there is, and what helps."""
    decision = view.scale.decision if view.scale is not None else None
    if view.worker.ready < view.worker.wanted:
        why = view.troubles.get("worker", "they may still be starting")
        return (
            "WorkersNotReady",
            f"{view.worker.ready} of {pods(view.worker.wanted, 'worker')} are ready: {why}.",
        )
    if view.backlog is not None and not view.backlog.in_flight and view.worker.ready:
        return "NothingClaimed", "Workers are ready and claim nothing: see their /readyz and logs."
    if decision is not None and decision.limited_by == "MaxReplicas":
        return (
            "TooManyReplicas",
            "All workers that spec.autoscaling.maxReplicas allows are at work: raise it.",
        )
    if decision is not None and decision.limited_by == "ScaleUpPolicy":
        return "ScaleUpLimit", "spec.autoscaling.behavior.scaleUp lets the number of workers rise no faster."
    return "Late", "More workers or concurrency help, or quicker handlers."


def paused(view: View) -> Condition:
    """Whether the operator was told to leave the children alone."""
    if view.resource.paused:
        message = "The annotation delayq.dev/paused is true: children are left alone, whatever the spec says."
        return told("Paused", "PausedByAnnotation", message)
    if view.resource.pausing != "false":
        message = (
            f'The annotation delayq.dev/paused is "{view.resource.pausing[:40]}", neither true nor false'
        )
        return told("Paused", "InvalidAnnotation", f"{message}: children follow the spec.")
    return told("Paused", "Reconciling", "Children follow the spec.")


_DECIDED: Final[tuple[Callable[[View], Condition], ...]] = (
    accepted,
    backend_available,
    durability_at_risk,
    progressing,
    degraded,
    scaling_active,
    scaling_limited,
    fallback_active,
    capacity_shortfall_expected,
    objective_met,
    paused,
)
"""All of them but Ready, in the order people read them."""


def conditions(view: View) -> list[Condition]:
    """Every condition that is no summary of others, also those nobody can tell."""
    return [decide(view) for decide in _DECIDED]

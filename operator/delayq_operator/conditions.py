"""Every condition and every reason, decided from what was seen. Pure; docs/operator.md lists them, a test compares.

Each function answers one question. Unknown means that nobody could tell, never that nobody asked. A reason stands for
one status only, so that people can look for either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq_operator import scaling
from delayq_operator.words import RISKS, listed, pods

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
        "NotDecided": _UNKNOWN,
    },
    "ScalingLimited": {"WithinBounds": _FALSE},
    "FallbackActive": {"NotNeeded": _FALSE},
    "ObjectiveMet": {"OnTime": _TRUE, "Late": _FALSE, "NotMeasured": _UNKNOWN},
    "Paused": {"PausedByAnnotation": _TRUE, "Reconciling": _FALSE},
}
"""Condition → reason → the status it stands for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is true, false or unknown, and why."""

    type: str
    status: Status
    reason: str
    message: str


def _told(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, REASONS[kind][reason], reason, message)


def accepted(view: View) -> Condition:
    """Whether the document makes sense and what it refers to is there."""
    kind = "Accepted"
    if view.problems:
        found = "; ".join(f"{problem.path}: {problem.message}" for problem in view.problems)
        return _told(kind, "InvalidSpec", f"{found}. Nothing was changed; correct the spec.")
    if view.missing:
        namespace = view.resource.key.namespace
        message = f"{listed(view.missing)} not found in namespace {namespace}. Pods start once created."
        return _told(kind, "ReferenceNotFound", message)
    return _told(kind, "Valid", "The spec is valid and what it refers to exists.")


def backend_available(view: View) -> Condition:
    """Whether the scanners reach Redis."""
    kind = "BackendAvailable"
    if view.backlog is not None and view.backlog.redis_up:
        return _told(kind, "Connected", "Scanners reach Redis.")
    if view.backlog is not None:
        message = "Scanners run but cannot reach Redis: check spec.redis, its Secret, network policies and their logs."
        return _told(kind, "Unreachable", message)
    if view.scanner.ready:
        message = f"Scanners are ready, which takes Redis; their metrics could not be read: {view.unread or 'not yet'}."
        return _told(kind, "ScannersReady", message)
    if view.scanner.exists and view.scanner.wanted == 0:
        return _told(kind, "NoScanners", "spec.scanner.replicas is 0: nobody measures.")
    return _told(kind, "NotMeasured", "No scanner has answered yet.")


def durability_at_risk(view: View) -> Condition:
    """Whether Redis is set up to keep what it is given."""
    kind = "DurabilityAtRisk"
    if view.backlog is None or not view.backlog.redis_up:
        return _told(kind, "NotMeasured", "No scanner has told yet how Redis is set up.")
    known = [risk for risk in RISKS if risk in view.backlog.risks]
    if known:
        return _told(kind, RISKS[known[0]][0], " ".join(RISKS[risk][1] for risk in known))
    if view.backlog.risks:
        return _told(kind, "NotTold", "Redis does not tell how it is set up (INFO or CONFIG is refused).")
    return _told(kind, "Durable", "Redis keeps an append-only file and evicts nothing.")


def progressing(view: View) -> Condition:
    """Whether pods are being replaced, in the words of Deployments."""
    kind = "Progressing"
    loads = (("scanner", view.scanner), ("worker", view.worker))
    if view.erasing is not None:
        return _told(kind, "Erasing", view.erasing.message or "The tasks are being erased.")
    for what, load in loads:
        if load.stuck:
            return _told(kind, "ProgressDeadlineExceeded", f"{what}: {load.stuck}")
    if view.leaving:
        message = f"Waiting until {listed(view.leaving)} of an earlier DelayQueue of this name is gone."
        return _told(kind, "WaitingForDeletion", message)
    for what, load in loads:
        if load.exists and load.rolling:
            running = min(load.updated, load.available)
            message = f"{running} of {pods(load.wanted, what)} run what the spec asks for."
            return _told(kind, "ReplicaSetUpdated", message)
    missing = [f"{what}s" for what, load in loads if not load.exists]
    if missing:
        return _told(kind, "NotStarted", f"There is no Deployment of {' and '.join(missing)}.")
    return _told(kind, "NewReplicaSetAvailable", "All pods run what the spec asks for.")


def degraded(view: View) -> Condition:
    """Whether something needs a person; the worst of it."""
    for reason, what in (
        ("EraseFailed", view.erasing.message if view.erasing is not None and view.erasing.failed else ""),
        ("NameTaken", _taken(view)),
        ("ApplyFailed", " ".join(view.failures)),
        ("QueueShared", _shared(view)),
        ("ForeignFields", _foreign(view)),
        ("PodsFailing", f"{listed(list(view.troubles.values()))}." if view.troubles else ""),
    ):
        if what:
            return _told("Degraded", reason, what)
    return _told("Degraded", "AsExpected", "Nothing needs attention.")


def _taken(view: View) -> str:
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
    if view.scale is None:
        return _told("ScalingActive", "NotDecided", "No decision was made.")
    return _told("ScalingActive", view.scale.reason, f"{view.scale.message}.")


def scaling_limited(_view: View) -> Condition:
    """Whether a bound kept the number of workers from what the work asks for."""
    return _told("ScalingLimited", "WithinBounds", "No bound keeps the number of workers from demand.")


def fallback_active(_view: View) -> Condition:
    """Whether the number of workers is a substitute for one that could not be decided."""
    return _told("FallbackActive", "NotNeeded", "No fallback is in use.")


def objective_met(view: View) -> Condition:
    """Whether tasks start in time. How late is in status.backlog: here it would be another message each time."""
    kind = "ObjectiveMet"
    if view.backlog is None or not view.backlog.whole or view.queue is None:
        return _told(kind, "NotMeasured", "No scanner has told yet what is due.")
    late, allowed = _late_seconds(view), view.queue.spec.objective.lateness_seconds
    if late > allowed:
        cure = "More workers or concurrency help, unless workers claim nothing: see their /readyz and logs."
        return _told(kind, "Late", f"Tasks have been due for more than {allowed} s (DUE, LATENESS). {cure}")
    return _told(kind, "OnTime", f"No task has been due for more than {allowed} s.")


def _late_seconds(view: View) -> float:
    backlog = view.backlog
    if backlog is None or backlog.oldest_due_at is None:
        return 0.0
    return backlog.read_at - backlog.oldest_due_at


def paused(view: View) -> Condition:
    """Whether the operator was told to leave the children alone."""
    if view.resource.paused:
        message = "The annotation delayq.dev/paused is true: children are left alone, whatever the spec says."
        return _told("Paused", "PausedByAnnotation", message)
    return _told("Paused", "Reconciling", "Children follow the spec.")


def ready(view: View) -> Condition:
    """Whether tasks run when they fall due: everything else, summed up."""
    for refuse in (_deleting, _rejected, _no_backend, _no_scanner, _held, _no_worker):
        reason, message = refuse(view)
        if reason:
            return _told("Ready", reason, message)
    return _told("Ready", "AsExpected", "Tasks run when they fall due.")


Refusal = tuple[str, str]
_FINE: Final[Refusal] = ("", "")


def _deleting(view: View) -> Refusal:
    if view.erasing is None:
        return _FINE
    return "Deleting", view.erasing.message or "The DelayQueue was deleted."


def _rejected(view: View) -> Refusal:
    verdict = accepted(view)
    return _FINE if verdict.status == "True" else (verdict.reason, verdict.message)


def _no_backend(view: View) -> Refusal:
    verdict = backend_available(view)
    return (verdict.reason, verdict.message) if verdict.status == "False" else _FINE


def _no_scanner(view: View) -> Refusal:
    if view.scanner.ready or (view.scanner.exists and view.scanner.wanted == 0):
        return _FINE
    if not view.scanner.exists:
        return "ScannersNotReady", f"There is no Deployment of scanners. {_obstacle(view)}"
    return "ScannersNotReady", f"No scanner is ready, of {view.scanner.wanted}. {_why(view, 'scanner')}"


def _held(view: View) -> Refusal:
    policy = "None" if view.queue is None else view.queue.spec.stop_policy
    return _FINE if policy == "None" else ("Held", f"spec.stopPolicy is {policy}: no task is claimed.")


def _no_worker(view: View) -> Refusal:
    if view.worker.ready:
        return _FINE
    if view.worker.exists and view.worker.wanted == 0:
        # With an HPA, none is what the work asks for; a fixed number is what somebody asked for.
        external = view.scale is not None and scaling.REASONS[view.scale.reason]
        return _FINE if external else ("NoWorkers", "There is no worker, because spec.worker.replicas is 0.")
    if not view.worker.exists:
        return "WorkersNotReady", f"There is no Deployment of workers. {_obstacle(view)}"
    return "WorkersNotReady", f"No worker is ready, of {view.worker.wanted}. {_why(view, 'worker')}"


def _obstacle(view: View) -> str:
    if view.resource.paused:
        return paused(view).message
    return _taken(view) or " ".join(view.failures) or "It is being made."


def _why(view: View, component: str) -> str:
    return view.troubles.get(component) or "They have not started yet; see kubectl describe pod."


CONDITIONS: Final[tuple[Callable[[View], Condition], ...]] = (
    ready,
    accepted,
    backend_available,
    durability_at_risk,
    progressing,
    degraded,
    scaling_active,
    scaling_limited,
    fallback_active,
    objective_met,
    paused,
)
"""All of them, in the order people read them."""


def conditions(view: View) -> list[Condition]:
    """Every condition, also those nobody can tell."""
    return [decide(view) for decide in CONDITIONS]

"""Every condition and every reason, decided from what was seen. Pure; docs/operator.md lists them, a test compares.

Each function answers one question. Unknown means that nobody could tell, never that nobody asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq_operator.words import RISKS, listed, pods

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.view import View

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is true, false or unknown, and why."""

    type: str
    status: Status
    reason: str
    message: str


def accepted(view: View) -> Condition:
    """Whether the document makes sense and what it refers to is there."""
    if view.problems:
        found = "; ".join(f"{problem.path}: {problem.message}" for problem in view.problems)
        return Condition(
            "Accepted", "False", "InvalidSpec", f"{found}. Nothing was changed; correct the spec."
        )
    if view.missing:
        return Condition(
            "Accepted",
            "False",
            "ReferenceNotFound",
            f"{listed(view.missing)} not found in namespace {view.resource.key.namespace}. Pods start once created.",
        )
    return Condition("Accepted", "True", "Valid", "The spec is valid and what it refers to exists.")


def backend_available(view: View) -> Condition:
    """Whether the scanners reach Redis."""
    kind = "BackendAvailable"
    if view.backlog is not None and view.backlog.redis_up:
        return Condition(kind, "True", "Connected", "Scanners reach Redis.")
    if view.backlog is not None:
        message = "Scanners run but cannot reach Redis: check spec.redis, its Secret, network policies and their logs."
        return Condition(kind, "False", "Unreachable", message)
    if view.scanner.ready:
        message = f"Scanners are ready, which takes Redis; their metrics could not be read: {view.unread or 'not yet'}."
        return Condition(kind, "True", "ScannersReady", message)
    if view.scanner.wanted == 0:
        return Condition(kind, "Unknown", "NoScanners", "spec.scanner.replicas is 0: nobody measures.")
    return Condition(kind, "Unknown", "NotMeasured", "No scanner has answered yet.")


def durability_at_risk(view: View) -> Condition:
    """Whether Redis is set up to keep what it is given."""
    kind = "DurabilityAtRisk"
    if view.backlog is None or not view.backlog.redis_up:
        return Condition(kind, "Unknown", "NotMeasured", "No scanner has told yet how Redis is set up.")
    known = [risk for risk in view.backlog.risks if risk in RISKS]
    if known:
        return Condition(kind, "True", RISKS[known[0]][0], " ".join(RISKS[risk][1] for risk in known))
    if view.backlog.risks:
        message = "Redis does not tell how it is set up (INFO or CONFIG is refused)."
        return Condition(kind, "Unknown", "NotTold", message)
    return Condition(kind, "False", "Durable", "Redis keeps an append-only file and evicts nothing.")


def progressing(view: View) -> Condition:
    """Whether pods are being replaced, in the words of Deployments."""
    kind = "Progressing"
    if view.erasing is not None:
        return Condition(kind, "True", "Erasing", view.erasing.message or "The tasks are being erased.")
    for what, load in (("scanner", view.scanner), ("worker", view.worker)):
        if load.stuck:
            return Condition(kind, "False", "ProgressDeadlineExceeded", f"{what}: {load.stuck}")
    for what, load in (("scanner", view.scanner), ("worker", view.worker)):
        if load.exists and load.rolling:
            message = f"{load.updated} of {pods(load.wanted, what)} run what the spec asks for."
            return Condition(kind, "True", "ReplicaSetUpdated", message)
    if view.leaving:
        message = f"Waiting until {listed(view.leaving)} of an earlier DelayQueue of this name is gone."
        return Condition(kind, "True", "WaitingForDeletion", message)
    return Condition(kind, "True", "NewReplicaSetAvailable", "All pods run what the spec asks for.")


def degraded(view: View) -> Condition:
    """Whether something needs a person."""
    kind = "Degraded"
    if view.erasing is not None and view.erasing.failed:
        return Condition(kind, "True", "EraseFailed", view.erasing.message)
    if view.taken:
        message = (
            f"{listed(view.taken)} exists and is not ours: rename or delete it, or rename this DelayQueue."
        )
        return Condition(kind, "True", "NameTaken", message)
    if view.failures:
        return Condition(kind, "True", "ApplyFailed", " ".join(view.failures))
    if view.foreign:
        message = f"Somebody added {listed(view.foreign)}: remove it, or add it to the template in the spec."
        return Condition(kind, "True", "ForeignContainers", message)
    return Condition(kind, "False", "AsExpected", "Nothing needs attention.")


def scaling_active(view: View) -> Condition:
    """Whether the number of workers follows the work."""
    if view.scale is None:
        return Condition("ScalingActive", "Unknown", "NotDecided", "No decision was made.")
    status: Status = "True" if view.scale.active else "False"
    return Condition("ScalingActive", status, view.scale.reason, f"{view.scale.message}.")


def scaling_limited(_view: View) -> Condition:
    """Whether a bound kept the number of workers from what the work asks for."""
    return Condition(
        "ScalingLimited", "False", "WithinBounds", "No bound keeps the number of workers from demand."
    )


def fallback_active(_view: View) -> Condition:
    """Whether the number of workers is a substitute for one that could not be decided."""
    return Condition("FallbackActive", "False", "NotNeeded", "No fallback is in use.")


def objective_met(view: View) -> Condition:
    """Whether tasks start in time."""
    kind = "ObjectiveMet"
    if view.backlog is None or not view.backlog.whole or view.queue is None:
        return Condition(kind, "Unknown", "NotMeasured", "No scanner has told yet what is due.")
    late, allowed = _late_seconds(view), view.queue.spec.objective.lateness_seconds
    if late > allowed:
        message = f"The most overdue of {view.backlog.due:,} due tasks waits for {late:.0f} s; objective: {allowed} s."
        return Condition(kind, "False", "Late", message)
    return Condition(kind, "True", "OnTime", f"No task has been due for more than {allowed} s.")


def _late_seconds(view: View) -> float:
    backlog = view.backlog
    if backlog is None or backlog.oldest_due_at is None:
        return 0.0
    return backlog.read_at - backlog.oldest_due_at


def paused(view: View) -> Condition:
    """Whether the operator was told to leave the children alone."""
    if view.resource.paused:
        message = "The annotation delayq.dev/paused is true: children are left alone, whatever the spec says."
        return Condition("Paused", "True", "PausedByAnnotation", message)
    return Condition("Paused", "False", "Reconciling", "Children follow the spec.")


def ready(view: View) -> Condition:
    """Whether tasks run when they fall due: everything else, summed up."""
    for refuse in (_deleting, _rejected, _no_backend, _no_scanner, _held, _no_worker):
        reason, message = refuse(view)
        if reason:
            return Condition("Ready", "False", reason, message)
    return Condition("Ready", "True", "AsExpected", "Tasks run when they fall due.")


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
    return "ScannersNotReady", f"No scanner is ready, of {view.scanner.wanted}. See kubectl describe pod."


def _held(view: View) -> Refusal:
    policy = "None" if view.queue is None else view.queue.spec.stop_policy
    return _FINE if policy == "None" else ("Held", f"spec.stopPolicy is {policy}: no task is claimed.")


def _no_worker(view: View) -> Refusal:
    if view.worker.ready or (view.worker.exists and view.worker.wanted == 0):
        return _FINE
    return "WorkersNotReady", f"No worker is ready, of {view.worker.wanted}. See kubectl describe pod."


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

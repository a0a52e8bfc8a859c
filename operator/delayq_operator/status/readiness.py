"""Condition Ready: the one that people wait for, and the first cause of why it is False. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.status import conditions, scaling_conditions, sharding_conditions
from delayq_operator.status.conditions import (
    accepted,
    backend_available,
    guard_available,
    no_image,
    paused,
    refused,
    taken,
)
from delayq_operator.status.reasons import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

Refusal = tuple[str, str]
_FINE: Final[Refusal] = ("", "")


def ready(view: View) -> Condition:
    """Whether tasks run when they fall due: everything else, summed up."""
    for refuse in (_deleting, _rejected, _no_backend, _no_scanner, _held, _no_guard, _no_worker):
        reason, message = refuse(view)
        if reason:
            return told("Ready", reason, message)
    return told("Ready", "AsExpected", "Tasks run when they fall due.")


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
    return (
        _FINE
        if policy == "None"
        else ("ClaimsSuspended", f"spec.stopPolicy is {policy}: no task is claimed.")
    )


def _no_guard(view: View) -> Refusal:
    verdict = guard_available(view)
    return (
        ("GuardUnreachable", verdict.message) if verdict is not None and verdict.status == "False" else _FINE
    )


def _no_worker(view: View) -> Refusal:
    if view.worker.ready:
        return _FINE
    if view.worker.exists and view.worker.wanted == 0:
        # With autoscaling, zero workers can be right; a fixed number is what the user requires.
        scaled = view.queue is not None and view.queue.spec.autoscaling is not None
        return _FINE if scaled else ("NoWorkers", "There is no worker, because spec.worker.replicas is 0.")
    if not view.worker.exists:
        return "WorkersNotReady", f"There is no Deployment of workers. {_obstacle(view)}"
    if view.learnt.waking and "worker" not in view.troubles and not view.worker.refused:
        return _FINE  # they were started so that they are there in time
    return "WorkersNotReady", f"No worker is ready, of {view.worker.wanted}. {_why(view, 'worker')}"


def _obstacle(view: View) -> str:
    if view.resource.paused and (verdict := paused(view)) is not None:
        return verdict.message
    return taken(view) or " ".join(view.failures) or "It is being made."


def _why(view: View, component: str) -> str:
    if found := view.troubles.get(component):
        return f"{found.rstrip('.')}.{no_image(view) if component == 'worker' else ''}"
    load = view.worker if component == "worker" else view.scanner
    if load.refused:
        return refused(component, load)
    if found := view.waiting.get(component):
        return f"{found}."
    if not load.pods:
        name = f"{view.resource.key.name}-{component}"
        return f"It has no pod yet; see kubectl describe deployment {name}."
    return "They have not started yet; see kubectl describe pod."


def _refused(view: View) -> Condition | None:
    """Return condition Accepted where it says more than condition Ready: refused, or something is not served."""
    verdict = accepted(view)
    return verdict if verdict.status == "False" or view.unserved else None


_DECIDED: Final[tuple[Callable[[View], Condition | None], ...]] = (
    ready,
    _refused,
    conditions.backend_available,
    conditions.durability_at_risk,
    sharding_conditions.resharding_complete,
    conditions.guard_available,
    conditions.progressing,
    conditions.degraded,
    scaling_conditions.scaling_active,
    scaling_conditions.scaling_limited,
    scaling_conditions.fallback_active,
    scaling_conditions.capacity_shortfall_expected,
    scaling_conditions.objective_met,
    conditions.paused,
)


def everything(view: View) -> list[Condition]:
    """Return every condition that applies, in the order people read them."""
    return [condition for decide in _DECIDED if (condition := decide(view)) is not None]

"""Condition Ready, with the first cause why it is False, and the list of all conditions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.scaling.sentences import counted

from delayq_operator.base import names
from delayq_operator.base.phrases import noun
from delayq_operator.status import conditions, scaling_conditions, sharding_conditions
from delayq_operator.status.conditions import (
    LEFT_ALONE,
    accepted,
    backend_available,
    conflict,
    guard_available,
    no_image,
    not_found,
    refused,
    suspended,
)
from delayq_operator.status.reasons import condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq_operator.cache.workload import Workload
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View


def ready(view: View) -> Condition:
    """Whether tasks run when they fall due: the summary of the other conditions."""
    reason, message = next(_obstacles(view), _intended(view))
    return condition("Ready", reason, message)


def _intended(view: View) -> tuple[str, str]:
    """Return reason and message without an obstacle: what the spec asks for is the case."""
    verdict = suspended(view)
    if verdict.status == "True":
        return "Suspended", verdict.message
    return "AsExpected", "Tasks run when they fall due."


def _obstacles(view: View) -> Iterator[tuple[str, str]]:
    """Yield reason and message of each obstacle; a cause comes before its effects."""
    if view.erasing is not None:
        yield "Deleting", view.erasing.message or "The DelayQueue was deleted."
    if (verdict := accepted(view)).status == "False":
        yield verdict.reason, verdict.message
    if _waits(view):
        yield "ReferenceNotFound", not_found(view)
    if (verdict := backend_available(view)).status == "False":
        yield verdict.reason, verdict.message
    if not view.scanner.ready and not view.scanner.unwanted:
        yield "ScannersNotReady", _not_ready(view, "scanner", view.scanner)
    if (guard := guard_available(view)) is not None and guard.status == "False":
        yield "GuardUnreachable", guard.message
    if view.worker.ready or _waking(view) or suspended(view).reason in {"Draining", "Drained"}:
        return
    if not view.worker.unwanted:
        yield "WorkersNotReady", _not_ready(view, "worker", view.worker)
    elif view.queue is None or view.queue.spec.autoscaling is None:
        # With autoscaling, zero workers can be right; a fixed number is what the user requires.
        yield "NoWorkers", "There is no worker, because spec.worker.replicas is 0."


def _waits(view: View) -> bool:
    """Whether no scanner, or no worker, has begun because a key is missing."""
    scanners = view.backlog is not None and not view.backlog.begun and not view.scanner.ready
    return scanners or (bool(view.workers.missing) and not view.worker.ready)


def _waking(view: View) -> bool:
    """Whether the first workers are starting as planned: one is enough, as with a node that has room for some."""
    startable = view.worker.pods if view.worker.refused else view.worker.wanted
    return view.observed.waking and view.stuck_workers < startable


def _not_ready(view: View, component: str, load: Workload) -> str:
    what = noun(component)
    if not load.exists:
        return f"There is no Deployment of {what}s. {_obstacle(view)}"
    return f"No {what} is ready, of {load.wanted}. {_why(view, component, load)}"


def _obstacle(view: View) -> str:
    if view.resource.left_alone:
        return LEFT_ALONE
    return conflict("NameConflict", view.taken) or " ".join(view.failures) or "It is being created."


def _why(view: View, component: str, load: Workload) -> str:
    if found := view.troubles.get(component):
        return f"{found.rstrip('.')}.{no_image(view) if component == 'worker' else ''}"
    if load.refused:
        return refused(component, load)
    if found := view.waiting.get(component):
        return f"{found}."
    if not load.pods:
        name = names.deployment(view.resource.key.name, component)
        return f"It has no pod yet; see kubectl describe deployment {name}."
    return "They have not started yet: kubectl describe pod says what they wait for."


def api_available(view: View) -> Condition | None:
    """Whether the HTTP API takes requests; None without spec.api. Ready does not count it: tasks run without it."""
    kind, load = "ApiAvailable", view.api
    if view.queue is None or view.queue.spec.api is None:
        return None
    if load.unwanted:
        return condition(kind, "NoReplicas", "spec.api.replicas is 0: the API does not run.")
    if not load.ready:
        return condition(kind, "PodsNotReady", _not_ready(view, "api", load))
    if view.issuer_unknown:
        message = f"Tokens of ServiceAccounts are refused, for their keys are unknown: {view.issuer_unknown}."
        return condition(kind, "IssuerKeysNotFound", message)
    return condition(kind, "PodsReady", f"{load.ready} of {counted(load.wanted, 'API pod')} take requests.")


_DECIDED: Final[tuple[Callable[[View], Condition | None], ...]] = (
    ready,
    conditions.accepted,
    conditions.backend_available,
    conditions.durability_met,
    sharding_conditions.resharding_complete,
    conditions.guard_available,
    api_available,
    conditions.progressing,
    conditions.degraded,
    scaling_conditions.scaling_active,
    scaling_conditions.scaling_limited,
    scaling_conditions.capacity_shortfall_expected,
    scaling_conditions.objective_met,
    conditions.suspended,
)


def everything(view: View) -> list[Condition]:
    """Return every condition that applies, in display order."""
    return [each for decide in _DECIDED if (each := decide(view)) is not None]

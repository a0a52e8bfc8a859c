"""What is wrong with a DelayQueue, its Redis and its pods: a condition each, decided from what was seen. Pure.

Each function answers one question. Not here: what there is to say of the number of workers (scaling_conditions.py), and
the condition that sums up the others (readiness.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.scaling.sentences import counted

from delayq_operator.base import names
from delayq_operator.base.words import FSYNC_UNKNOWN, OUTAGES, RISKS, listed
from delayq_operator.status.reasons import told
from delayq_operator.status.sharding_conditions import unserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.contract import Problem
    from delayq.contract.guard import Guard

    from delayq_operator.cache.workload import Workload
    from delayq_operator.scrape.shards import Shards
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

MOST_PROBLEMS: Final = 20
"""Problems of a spec that a message names."""


def accepted(view: View) -> Condition:
    """Whether the document makes sense and what it refers to is there."""
    kind = "Accepted"
    if view.problems:
        return told(kind, "InvalidSpec", f"{_found(view.problems)}. Nothing was changed; correct the spec.")
    if view.forbidden:
        cure = "Running pods are kept and scaled; nothing else changes until the DelayQueue is corrected."
        return told(kind, "PolicyViolation", f"{_found(view.forbidden)}. {cure}")
    if view.stranding:
        message = (
            f"spec.redis names another Redis, and {view.stranding}. Processes continue with the old one, and nothing "
            f"else changes. Wait until it is empty, or set the annotation {names.ABANDON_TASKS} to true to abandon "
            "its tasks."
        )
        return told(kind, "RedisNotEmpty", message)
    if view.missing:
        namespace = view.resource.key.namespace
        message = f"{listed(view.missing)} not found in namespace {namespace}. Running pods continue; new pods wait."
        return told(kind, "ReferenceNotFound", message)
    return told(kind, "Valid", f"The spec is valid and what it refers to exists.{_unserved(view)}")


def _found(problems: Sequence[Problem]) -> str:
    """Name some problems: a spec can have thousands."""
    named = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:MOST_PROBLEMS])
    more = len(problems) - MOST_PROBLEMS
    return f"{named}; and {more} more" if more > 0 else named


def _unserved(view: View) -> str:
    what = "is not served by this cluster, or not to this operator"
    return f" spec.monitoring asks for what {what}: {listed(view.unserved)}." if view.unserved else ""


def backend_available(view: View) -> Condition:
    """Whether the scanners reach Redis, with every shard."""
    kind = "BackendAvailable"
    if view.backlog is not None and view.backlog.redis_up:
        return _served(view.backlog.shards)
    if view.backlog is not None:
        message = f"Scanners cannot reach Redis: {OUTAGES.get(view.backlog.outage, OUTAGES['other'])}."
        return told(kind, "Unreachable", message)
    if view.scanner.ready:
        message = f"Scanners are ready, so they reach Redis. Their metrics cannot be read: {view.unread or 'not yet'}."
        return told(kind, "ScannersReady", message)
    if view.scanner.unwanted:
        return told(kind, "NoScanners", "spec.scanner.replicas is 0: no scanner measures.")
    return told(kind, "MetricsUnavailable", "No scanner answers the operator.")


def _served(shards: Shards) -> Condition:
    """Say which shards Redis serves, once it serves some: one whose server is down delays its own tasks only."""
    if not shards.down:
        return told("BackendAvailable", "Connected", "Scanners reach Redis.")
    of = f" of {shards.shard_map.covers}" if shards.shard_map is not None else ""
    message = f"Redis does not serve {len(shards.down)}{of} shards: {unserved(shards.down)}."
    return told("BackendAvailable", "PartiallyUnreachable", f"{message} Their tasks wait; all others run.")


def durability_at_risk(view: View) -> Condition:
    """Whether Redis is set up to keep what it is given."""
    kind = "DurabilityAtRisk"
    if view.backlog is None or not view.backlog.redis_up:
        return told(kind, "MetricsUnavailable", "No scanner reports the settings of Redis.")
    known = [risk for risk in RISKS if risk in view.backlog.risks]
    if known:
        return told(kind, RISKS[known[0]][0], " ".join(RISKS[risk][1] for risk in known))
    if "unknown" in view.backlog.risks:
        return told(kind, "DurabilityUnknown", "Redis refuses INFO, so its settings are unknown.")
    if view.backlog.risks:
        return told(kind, "FsyncUnknown", FSYNC_UNKNOWN)
    return told(kind, "Durable", "Redis keeps an append-only file and evicts nothing.")


def guard_available(view: View) -> Condition | None:
    """Whether workers can use the guard: without it they claim nothing. None where the spec has no guard."""
    kind, seen = "GuardAvailable", view.guarding
    guard = view.queue.spec.guard if view.queue is not None else None
    if guard is None:
        return None
    if seen.down:
        message = f"0 of {counted(seen.unable, 'worker')} can use the guard: no task is started."
        return told(kind, "Unreachable", f"{message} {_guards_store(guard)}")
    if seen.unable:
        who = f"{seen.unable} of {counted(seen.able + seen.unable, 'worker')} cannot use the guard"
        return told(kind, "PartiallyUnreachable", f"{who}, and claim nothing. {_guards_store(guard)}")
    if seen.able:
        return told(kind, "Connected", "Workers can use the guard.")
    if not view.worker.pods:
        return told(kind, "NoWorkers", "There is no worker to check the guard.")
    return told(kind, "MetricsUnavailable", "No worker reports whether it can use the guard.")


def _guards_store(guard: Guard) -> str:
    """Say where to look."""
    what = "the queue's Redis"
    if guard.sql is not None:
        what = f"the database that Secret {guard.sql.database_secret_ref.name} names"
    elif guard.redlock is not None:
        what = f"the Redis servers that Secret {guard.redlock.urls_secret_ref.name} names"
    return f"Check {what}; the workers' logs say why, as guard_breaker_opened."


def progressing(view: View) -> Condition:
    """Whether pods are being replaced, in the words of Deployments."""
    kind = "Progressing"
    if view.erasing is not None:
        return told(kind, "Erasing", view.erasing.message or "The tasks are being erased.")
    for what, load in view.loads:
        if load.paused or load.stuck:
            reason = "DeploymentPaused" if load.paused else "ProgressDeadlineExceeded"
            why = "kubectl rollout pause keeps its pods as they are." if load.paused else load.stuck
            return told(kind, reason, f"{what}: {why}")
    if view.leaving:
        message = f"Waiting until {listed(view.leaving)} of an earlier DelayQueue of this name is gone."
        return told(kind, "WaitingForDeletion", message)
    for what, load in view.loads:
        if load.exists and load.rolling:
            running = min(load.updated, load.available)
            message = f"{running} of {counted(load.wanted, what)} match the spec."
            return told(kind, "ReplicaSetUpdated", message)
    missing = [f"{what}s" for what, load in view.loads if not load.exists]
    if missing:
        return told(kind, "DeploymentNotFound", f"There is no Deployment of {' and '.join(missing)}.")
    return told(kind, "NewReplicaSetAvailable", "All pods match the spec.")


CONFLICTS: Final[Mapping[str, str]] = {
    "NameConflict": (
        "{} exists and is not managed by the operator: rename or delete it, or rename this DelayQueue."
    ),
    "OperatorConflict": (
        "Another installation of the operator, {}, claims this DelayQueue. Uninstall one of the two, or have each "
        "serve other namespaces."
    ),
    "QueueConflict": (
        "{} has the same queue in the same Redis: give each a spec.queueName, keyPrefix or database of its own, unless "
        "one code is to handle both's tasks."
    ),
    "UnmanagedFields": "Another client added {}: remove it, or add it to the template in the spec.",
}
"""Reason of Degraded → what others have done, and what to do."""


def conflict(reason: str, found: Sequence[str]) -> str:
    """Say what conflicts; empty when nothing does."""
    return CONFLICTS[reason].format(listed(found)) if found else ""


def degraded(view: View) -> Condition:
    """Whether something needs a person; the worst of it."""
    for reason, what in (
        ("EraseFailed", view.erasing.message if view.erasing is not None and view.erasing.failed else ""),
        ("NameConflict", conflict("NameConflict", view.taken)),
        ("ApplyFailed", " ".join(view.failures)),
        ("OperatorConflict", conflict("OperatorConflict", [view.rival] if view.rival else [])),
        ("QueueConflict", conflict("QueueConflict", view.sharing)),
        ("UnmanagedFields", conflict("UnmanagedFields", view.foreign)),
        ("PodsRejected", _rejected(view)),
        ("RolloutPaused", _rollout_paused(view)),
        ("PodsFailing", f"{listed(list(view.troubles.values()))}.{no_image(view)}" if view.troubles else ""),
    ):
        if what:
            return told("Degraded", reason, what)
    return told("Degraded", "AsExpected", "No child needs attention.")


def refused(component: str, load: Workload) -> str:
    """Say why the API server takes no pods of a Deployment."""
    return f"The API server rejects pods of the {component}: {load.refused.rstrip('.')}."


def _rejected(view: View) -> str:
    found = [refused(component, load) for component, load in view.loads if load.refused]
    if view.runless:
        jobs = f"{names.QUEUE_LABEL}={names.label_value(view.resource.key.name)}"
        what = "The last run of the reaper has no pod: the API server rejects it, or the Job controller does not run."
        found.append(f"{what} `kubectl describe jobs --selector {jobs}` says why.")
    return " ".join(found)


def _rollout_paused(view: View) -> str:
    name, namespace = view.resource.key.name, view.resource.key.namespace
    paused = [f"deployment/{name}-{component}" for component, load in view.loads if load.paused]
    if not paused:
        return ""
    what = f"{listed(paused)} is paused, so its pods are not replaced."
    return f"{what} To go on: `kubectl rollout resume {' '.join(paused)} --namespace {namespace}`."


def no_image(view: View) -> str:
    """Say what workers lack when they do not find their code; empty when it is not that."""
    spec = view.queue.spec if view.queue else None
    if spec is None or spec.handler.python is None or spec.worker.image:
        return ""
    if "no module" not in view.troubles.get("worker", ""):
        return ""
    return " Workers run the operator's image, without your code: set spec.worker.image."


def paused(view: View) -> Condition | None:
    """Whether the annotation pauses reconciliation. None without the annotation."""
    if view.resource.paused:
        message = "The annotation delayq.dev/paused is true: the operator does not change children."
        return told("Paused", "PausedByAnnotation", message)
    if view.resource.pausing != "false":
        quoted = f'"{view.resource.pausing[:40]}", neither true nor false'
        message = f"The annotation delayq.dev/paused is {quoted}: children follow the spec."
        return told("Paused", "InvalidAnnotation", message)
    return None

"""Conditions of a DelayQueue, its Redis and its pods. Pure: each function decides one condition from the view.

Not here: conditions of scaling (scaling_conditions.py) and the summary Ready (readiness.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract.outages import remedy
from delayq.scaling.sentences import counted

from delayq_operator.base import names
from delayq_operator.base.phrases import FSYNC_UNKNOWN, RISKS, listed, noun, timestamp
from delayq_operator.scrape.changes import bucket
from delayq_operator.status.reasons import condition
from delayq_operator.status.sharding_conditions import unserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.contract import Problem
    from delayq.contract.guard import Guard

    from delayq_operator.cache.workload import Workload
    from delayq_operator.scrape.backlog import UnknownKind
    from delayq_operator.scrape.shards import Shards
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

MOST_PROBLEMS: Final = 20
"""Problems of a spec that a message names."""


def accepted(view: View) -> Condition:
    """Whether the spec is valid and allowed."""
    kind = "Accepted"
    if view.problems:
        return condition(
            kind, "InvalidSpec", f"{_found(view.problems)}. Nothing was changed; correct the spec."
        )
    if view.forbidden:
        cure = "Running pods are kept and scaled; nothing else changes until the DelayQueue is corrected."
        return condition(kind, "PolicyViolation", f"{_found(view.forbidden)}. {cure}")
    if view.redis_not_empty:
        message = (
            f"spec.redis names another Redis, and {view.redis_not_empty}. Processes continue with the old one, and "
            f"nothing else changes. Wait until it is empty, or set the annotation {names.ABANDON_TASKS} to its "
            "address to abandon its tasks."
        )
        return condition(kind, "RedisNotEmpty", message)
    return condition(kind, "Valid", f"The spec is valid.{_unserved(view)}")


def _found(problems: Sequence[Problem]) -> str:
    """Name the first MOST_PROBLEMS: a spec can have thousands."""
    named = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:MOST_PROBLEMS])
    more = len(problems) - MOST_PROBLEMS
    return f"{named}; and {more} more" if more > 0 else named


def _unserved(view: View) -> str:
    what = "is not served by this cluster, or not to this operator"
    return f" spec.monitoring asks for what {what}: {listed(view.unserved)}." if view.unserved else ""


def backend_available(view: View) -> Condition:
    """Whether scanners reach Redis and Redis serves every shard."""
    kind = "BackendAvailable"
    if view.backlog is not None and view.backlog.redis_up:
        return _served(view.backlog.shards)
    if view.backlog is not None and not view.backlog.begun:
        return condition(kind, "MetricsUnavailable", "Scanners wait for a Secret or ConfigMap.")
    if view.backlog is not None:
        message = f"Scanners cannot reach Redis: {remedy(view.backlog.outage)}."
        return condition(kind, "Unreachable", message)
    if view.scanner.ready:
        message = f"Scanners are ready, so they reach Redis. Their metrics cannot be read: {view.unread or 'not yet'}."
        return condition(kind, "ScannersReady", message)
    if view.scanner.unwanted:
        return condition(kind, "NoScanners", "spec.scanner.replicas is 0: no scanner measures.")
    return condition(kind, "MetricsUnavailable", "No scanner answers the operator.")


def _served(shards: Shards) -> Condition:
    """Name the shards that Redis does not serve. Tasks of the other shards run."""
    if not shards.down:
        return condition("BackendAvailable", "Connected", "Scanners reach Redis.")
    down = counted(len(shards.down), "shard")
    if shards.shard_map is not None:
        down = f"{len(shards.down)} of {counted(shards.shard_map.shards_in_use, 'shard')}"
    message = f"Redis does not serve {down}: {unserved(shards.down)}."
    return condition(
        "BackendAvailable", "PartiallyUnreachable", f"{message} Their tasks wait; all others run."
    )


def durability_met(view: View) -> Condition:
    """Whether no setting and no state of Redis is known by which it can lose tasks."""
    kind = "DurabilityMet"
    if view.backlog is None or not view.backlog.redis_up:
        return condition(kind, "MetricsUnavailable", "No scanner reports the settings of Redis.")
    known = [risk for risk in RISKS if risk in view.backlog.risks]
    if known:
        return condition(kind, RISKS[known[0]][0], " ".join(RISKS[risk][1] for risk in known))
    if "unknown" in view.backlog.risks:
        return condition(kind, "DurabilityUnknown", "Redis refuses INFO, so its settings are unknown.")
    if view.backlog.risks:
        return condition(kind, "FsyncUnknown", FSYNC_UNKNOWN)
    return condition(kind, "NoRiskFound", "Redis keeps an append-only file and evicts nothing.")


def guard_available(view: View) -> Condition | None:
    """Whether workers can use the guard: without it no task starts that it applies to. None if the spec has none."""
    kind, seen = "GuardAvailable", view.workers.guard
    guard = view.queue.spec.guard if view.queue is not None else None
    if guard is None:
        return None
    if seen.down:
        waits = "no task is started" if guard.applies_to == "AllTasks" else "tasks of the kinds under it wait"
        message = f"0 of {counted(seen.unable, 'worker')} can use the guard: {waits}."
        return condition(kind, "Unreachable", f"{message} {_guards_store(guard)}")
    if seen.unable:
        claim = "claim nothing" if guard.applies_to == "AllTasks" else "postpone tasks of the kinds under it"
        who = f"{seen.unable} of {counted(seen.able + seen.unable, 'worker')} cannot use the guard"
        return condition(kind, "PartiallyUnreachable", f"{who}, and {claim}. {_guards_store(guard)}")
    if seen.able:
        return condition(kind, "Connected", "Workers can use the guard.")
    if not view.worker.pods:
        return condition(kind, "NoWorkers", "There is no worker to check the guard.")
    return condition(kind, "MetricsUnavailable", "No worker reports whether it can use the guard.")


def _guards_store(guard: Guard) -> str:
    """Name the store of the guard to check."""
    what = "the queue's Redis"
    if guard.sql is not None:
        what = f"the database that Secret {guard.sql.database_secret_ref.name} names"
    elif guard.redlock is not None:
        what = f"the Redis servers that Secret {guard.redlock.urls_secret_ref.name} names"
    return f"Check {what}; the workers' logs say why, as guard_breaker_opened."


def _parked(view: View) -> str:
    """Name the tasks that wait for a worker that has their kind and version.

    The message has rounded numbers and times, not ages: it changes only if the tasks do.
    """
    if not view.long_parked or view.backlog is None:
        return ""
    kinds = listed([_unknown_kind(each) for each in view.backlog.unknown_kinds])
    message = f"No worker knew the kind or version of {counted(bucket(view.backlog.parked), 'task')}"
    cure = "They wait, uncharged, until a worker that has their kind runs: deploy one, or cancel them."
    return f"{message}{f': {kinds}' if kinds else ''}. {cure}"


def _unknown_kind(found: UnknownKind) -> str:
    name = f"{found.kind} version {found.version}" if found.kind else "without a kind"
    oldest = "" if found.oldest_due_at is None else f", the oldest due {timestamp(found.oldest_due_at)}"
    return f"{name} ({counted(bucket(found.tasks), 'task')}{oldest})"


def progressing(view: View) -> Condition:
    """Whether pods are being replaced, with the reasons of Deployments."""
    if view.erasing is not None:
        return condition("Progressing", "Erasing", view.erasing.message or "The tasks are being erased.")
    if view.resource.left_alone:
        return condition("Progressing", "ReconciliationSuspended", LEFT_ALONE)
    return _rollout(view)


def _rollout(view: View) -> Condition:
    kind = "Progressing"
    for what, load in view.loads:
        if load.paused or load.stuck:
            reason = "DeploymentPaused" if load.paused else "ProgressDeadlineExceeded"
            why = "kubectl rollout pause keeps its pods as they are." if load.paused else load.stuck
            return condition(kind, reason, f"{noun(what)}: {why}")
    if view.leaving:
        message = f"Waiting until {listed(view.leaving)} of an earlier DelayQueue of this name is gone."
        return condition(kind, "WaitingForDeletion", message)
    for what, load in view.loads:
        if load.exists and load.rolling:
            running = min(load.updated, load.available)
            message = f"{running} of {counted(load.wanted, noun(what))} match the spec."
            return condition(kind, "ReplicaSetUpdated", message)
    missing = [f"{noun(what)}s" for what, load in view.loads if not load.exists]
    if missing:
        return condition(kind, "DeploymentNotFound", f"There is no Deployment of {' and '.join(missing)}.")
    return condition(kind, "NewReplicaSetAvailable", "All pods match the spec.")


CONFLICTS: Final[Mapping[str, str]] = {
    "NameConflict": (
        "{} exists and is not managed by the operator: rename or delete it, or rename this DelayQueue."
    ),
    "OperatorConflict": (
        "Another installation of the operator, {}, claims this DelayQueue. Uninstall one of the two, or have each "
        "serve other namespaces."
    ),
    "QueueConflict": (
        "Scanners of {} serve the same queue in the same Redis: give each a spec.queueName, keyPrefix or "
        "database of its own, unless one handler runs the tasks of both."
    ),
    "UnmanagedFields": "Another client added {}: remove it, or add it to the template in the spec.",
}
"""Reason of Degraded → what another client or user did, and how to resolve it."""


def conflict(reason: str, found: Sequence[str]) -> str:
    """Return the message of a conflict; empty if there is none."""
    return CONFLICTS[reason].format(listed(found)) if found else ""


def degraded(view: View) -> Condition:
    """Whether a fault needs manual work; the most severe one."""
    for reason, what in (
        ("EraseFailed", view.erasing.message if view.erasing is not None and view.erasing.failed else ""),
        ("NameConflict", conflict("NameConflict", view.taken)),
        ("ApplyFailed", " ".join(view.failures)),
        ("OperatorConflict", conflict("OperatorConflict", [view.rival] if view.rival else [])),
        ("QueueConflict", conflict("QueueConflict", view.sharing)),
        ("UnmanagedFields", conflict("UnmanagedFields", view.foreign)),
        ("PodsRejected", _rejected(view)),
        ("RolloutPaused", _rollout_paused(view)),
        ("ReferenceNotFound", not_found(view)),
        (
            "PodsFailing",
            f"{listed(list(view.troubles.values()))}.{no_image(view)}" if view.troubles else "",
        ),
        ("InvalidAnnotation", _invalid_annotation(view)),
        ("TasksParked", _parked(view)),
    ):
        if what:
            return condition("Degraded", reason, what)
    return condition("Degraded", "AsExpected", "No child needs attention.")


def refused(component: str, load: Workload) -> str:
    """Return why the API server rejects pods of a Deployment."""
    what = "HTTP API" if component == "api" else component
    return f"The API server rejects pods of the {what}: {load.refused.rstrip('.')}."


def _rejected(view: View) -> str:
    found = [refused(component, load) for component, load in view.loads if load.refused]
    if view.podless_run:
        jobs = f"{names.QUEUE_LABEL}={names.label_value(view.resource.key.name)}"
        what = "The last run of the reaper has no pod: the API server rejects it, or the Job controller does not run."
        found.append(f"{what} `kubectl describe jobs --selector {jobs}` says why.")
    return " ".join(found)


def not_found(view: View) -> str:
    """Name the keys of Secrets and ConfigMaps that processes wait for; empty if there is none."""
    if not view.missing:
        return ""
    found = f"{listed([str(each) for each in view.missing])} not found, or not usable"
    cure = "Create or correct it: the pods that wait for it read it within two minutes, without a restart."
    return f"{found}, in namespace {view.resource.key.namespace}. {cure}{_check_unusable(view)}"


def _check_unusable(view: View) -> str:
    """Say what happens while a recovery check lacks a key. Scanners work on: tasks run when they fall due."""
    check = view.queue.spec.recovery.check if view.queue is not None else None
    lacks = view.backlog is not None and view.backlog.begun and view.backlog.missing
    if check is None or not lacks:
        return ""
    decides = f"onFailure ({check.on_failure}) decides about each task whose lease expires"
    return f" spec.recovery.check cannot be called without it: until then, {decides}."


def _rollout_paused(view: View) -> str:
    name, namespace = view.resource.key.name, view.resource.key.namespace
    paused = [
        f"deployment/{names.deployment(name, component)}" for component, load in view.loads if load.paused
    ]
    if not paused:
        return ""
    what = f"{listed(paused)} is paused, so its pods are not replaced."
    return f"{what} To resume: `kubectl rollout resume {' '.join(paused)} --namespace {namespace}`."


def no_image(view: View) -> str:
    """Return a hint if workers cannot import the handler because spec.worker.image is not set; else empty."""
    spec = view.queue.spec if view.queue else None
    if spec is None or spec.worker.image or not any(each.python for each in spec.handler.each):
        return ""
    if "no module" not in view.troubles.get("worker", ""):
        return ""
    return " Workers run the operator's image, without your code: set spec.worker.image."


LEFT_ALONE: Final = (
    f"The annotation {names.SUSPEND_RECONCILIATION} is true: the operator does not change children."
)


def _invalid_annotation(view: View) -> str:
    value = view.resource.suspend_reconciliation
    if value in {"true", "false"}:
        return ""
    found = f'"{value[:40]}", neither true nor false'
    return f"The annotation {names.SUSPEND_RECONCILIATION} is {found}: children follow the spec."


def suspended(view: View) -> Condition:
    """Whether the spec, or `delayq suspend`, suspends the queue: no task is claimed."""
    if view.queue is None:
        return condition(
            "Suspended", "InvalidSpec", "The spec is invalid. Processes continue with the one before."
        )
    suspension = view.suspension
    if not suspension.message:
        return condition("Suspended", "NotSuspended", "Due tasks are claimed.")
    message = f"{suspension.message}: no task is claimed."
    if not suspension.drains:
        return condition("Suspended", "Holding", f"{message} Workers stay.")
    if view.worker.pods:
        return condition("Suspended", "Draining", f"{message} Workers stop when their tasks have ended.")
    return condition("Suspended", "Drained", f"{message} There is no worker.")

"""Writes status when it changed significantly, and posts events about changes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from delayq.kube.errors import NotFound
from delayq.kube.objects import name_of

from delayq_operator.base import metrics, names
from delayq_operator.reconcile.unserved import report_unserved
from delayq_operator.status.long_parked import LongParked
from delayq_operator.status.status import status, wait_seconds
from delayq_operator.status.unready import NOW, Unready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.apply import Outcome
    from delayq_operator.status.events import Recorder
    from delayq_operator.status.view import View

TURNED_TRUE: Final = {
    "Ready": "Ready",
    "Suspended": "Suspended",
    "CapacityShortfallExpected": "CapacityShortfallExpected",
}
"""Condition → event when it becomes True."""

TURNED_FALSE: Final = {
    "Ready": "NotReady",
    "Suspended": "Resumed",
    "BackendAvailable": "BackendUnavailable",
    "ReshardingComplete": "ReshardingStarted",
    "GuardAvailable": "GuardUnavailable",
    "ObjectiveMet": "ObjectiveMissed",
}
"""Condition → event when it becomes False, after it was True."""

NEWLY_FALSE: Final = {"DurabilityMet": "DurabilityAtRisk"}
"""Condition → event when it becomes False, also of a new queue."""

RECOVERED: Final = {"GuardAvailable": "GuardAvailable", "ReshardingComplete": "ReshardingComplete"}
"""Condition → event when it becomes True, after it was False."""

BY_REASON: Final = {
    "Accepted": ("InvalidSpec", "PolicyViolation", "RedisNotEmpty"),
    "Degraded": (
        "NameConflict",
        "OperatorConflict",
        "QueueConflict",
        "UnmanagedFields",
        "ApplyFailed",
        "EraseFailed",
        "PodsRejected",
        "RolloutPaused",
        "ReferenceNotFound",
        "PodsFailing",
        "InvalidAnnotation",
        "TasksParked",
    ),
    "Progressing": ("ProgressDeadlineExceeded", "ReconciliationSuspended"),
    "ReshardingComplete": ("ReshardingStalled",),
}
"""Condition → reasons that post an event of the same name when the condition gets them."""

ENDED: Final = {
    "ReconciliationSuspended": ("ReconciliationResumed", "The operator reconciles the children again.")
}
"""Reason of Progressing → event when it ends, with its message."""

ABSENT: Final = {
    "ReshardingComplete": {"status": "True", "reason": "", "message": "Tasks are in 1 shard."},
}
"""Conditions that are absent where they do not apply → what their absence means."""


class Reporter:
    """Reports on all DelayQueues."""

    def __init__(self, api: Api, inventory: Inventory, work: WorkQueue, recorder: Recorder) -> None:
        """Responses of the API server update the cache of DelayQueues at once, ahead of the watch."""
        self._api, self._inventory, self._work, self._recorder = api, inventory, work, recorder
        self.unserved = partial(report_unserved, api, inventory.schedules)
        self._written_at: dict[Key, float] = {}
        self._ready: dict[Key, str] = {}
        self._unready = Unready()
        self._long_parked = LongParked()

    async def report(self, view: View) -> None:
        """Write the status if it changed; rate-limited if only numbers did."""
        resource, now = view.resource, time.time()
        previous = resource.status
        parked = self._long_parked.wait_seconds(view, now)
        made = status(replace(view, long_parked=parked == NOW), previous, now)
        self._count(resource.key, view, made)
        self._post_unready(resource, made, now)
        since = now - self._written_at.get(resource.key, 0.0)
        wait = wait_seconds(made, previous, since)
        if parked:
            self._work.enqueue_in(resource.key, parked)
        if wait is None:
            return
        if wait > 0:
            self._work.enqueue_in(resource.key, wait)
            return
        await self._write(resource, made)
        for reason, message in turned(previous, made):
            self._recorder.post(resource, reason, message)
            if reason == "NotReady":
                self._unready.reported(resource.key)

    def _post_unready(self, resource: Resource, made: Mapping[str, Any], now: float) -> None:
        """Post an event for a queue that has not become ready in time."""
        ready = next(entry for entry in made["conditions"] if entry["type"] == "Ready")
        wait = self._unready.wait_seconds(resource.key, ready, now)
        if wait == NOW:
            self._recorder.post(resource, "NotReady", f"{ready['reason']}: {ready['message']}")
        elif wait is not None:
            self._work.enqueue_in(resource.key, wait)

    async def _write(self, resource: Resource, made: dict[str, Any]) -> None:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.DELAY_QUEUE.kind,
            "metadata": {"name": resource.key.name, "namespace": resource.key.namespace, "uid": resource.uid},
            "status": made,
        }
        try:
            written = await self._api.apply(
                names.DELAY_QUEUE, body, manager=names.OPERATOR, subresource="status"
            )
        except NotFound:
            self._inventory.ended(names.DELAY_QUEUE, name_of(resource.body), resource.uid)
            return
        self._written_at[resource.key] = time.time()
        self._inventory.wrote(written)

    def post_events(self, resource: Resource, outcome: Outcome) -> None:
        """Post events about changes of the children."""
        if outcome.created:
            self._recorder.post(resource, "Created", f"created {', '.join(outcome.created)}")
        for sentence in outcome.rolled:
            self._recorder.post(resource, "RolledOut", f"pods are replaced: {sentence}")
        if outcome.scaled is not None:
            self._recorder.post(resource, *outcome.scaled)
        if outcome.repaired:
            self._recorder.post(resource, "Repaired", f"restored {', '.join(outcome.repaired)}")
        if outcome.pruned:
            self._recorder.post(resource, "Pruned", f"deleted {', '.join(outcome.pruned)}")

    def forget(self, key: Key) -> None:
        """Drop the state of a DelayQueue."""
        self._written_at.pop(key, None)
        self._unready.forget(key)
        self._long_parked.forget(key)
        self._ready.pop(key, None)
        metrics.forget_workers(key.namespace, key.name)
        metrics.count_ready(self._ready.values())

    def _count(self, key: Key, view: View, made: Mapping[str, Any]) -> None:
        before = self._ready.get(key)
        self._ready[key] = next(entry["status"] for entry in made["conditions"] if entry["type"] == "Ready")
        if before != self._ready[key]:
            metrics.count_ready(self._ready.values())
        gauge = metrics.WORKER_REPLICAS
        gauge.labels(key.namespace, key.name, "current").set(view.worker.pods)
        if view.scale is None:
            return
        gauge.labels(key.namespace, key.name, "desired").set(view.scale.replicas)
        if view.scale.decision is not None:
            gauge.labels(key.namespace, key.name, "demand").set(view.scale.decision.wanted)
        for observed, seconds in (
            (metrics.WORKER_LEAD, view.observed.lead_seconds),
            (metrics.WORKER_HANDLER, view.observed.handler_seconds),
        ):
            if seconds is not None:
                observed.labels(key.namespace, key.name).set(seconds)


def turned(previous: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield reason and message of the events for a change of status."""
    before, after = _by_type(previous), _by_type(made)
    for kind, entry in after.items():
        old = before.get(kind, {})
        if entry["status"] != old.get("status"):
            if entry["status"] == "True" and kind in TURNED_TRUE:
                yield TURNED_TRUE[kind], entry["message"]
            if entry["status"] == "True" and old.get("status") == "False" and kind in RECOVERED:
                yield RECOVERED[kind], entry["message"]
            if entry["status"] == "False" and old.get("status") == "True" and kind in TURNED_FALSE:
                yield TURNED_FALSE[kind], f"{entry['reason']}: {entry['message']}"
            if entry["status"] == "False" and kind in NEWLY_FALSE:
                yield NEWLY_FALSE[kind], entry["message"]
        if entry["reason"] != old.get("reason") and entry["reason"] in BY_REASON.get(kind, ()):
            yield entry["reason"], entry["message"]
        if entry["reason"] != old.get("reason") and old.get("reason") in ENDED:
            yield ENDED[old["reason"]]


def _by_type(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the conditions by type; empty while there is no status."""
    found = {entry["type"]: entry for entry in status.get("conditions") or ()}
    return {**ABSENT, **found} if found else {}

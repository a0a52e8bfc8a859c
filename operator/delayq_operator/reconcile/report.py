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
from delayq_operator.status.lasting import (
    NOW,
    OUT_OF_ORDER,
    PARKED_SECONDS,
    START_SECONDS,
    Lasting,
    parked_since,
    unready_since,
)
from delayq_operator.status.reasons import REASONS
from delayq_operator.status.status import status, wait_seconds

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

TURNED: Final = {
    ("Ready", "", "True"): "Ready",
    ("Ready", "True", "False"): "NotReady",
    ("BackendAvailable", "True", "False"): "BackendUnavailable",
    ("DurabilityMet", "", "False"): "DurabilityAtRisk",
    ("ReshardingComplete", "True", "False"): "ReshardingStarted",
    ("ReshardingComplete", "False", "True"): "ReshardingComplete",
    ("GuardAvailable", "True", "False"): "GuardUnavailable",
    ("GuardAvailable", "False", "True"): "GuardAvailable",
    ("ApiAvailable", "True", "False"): "ApiUnavailable",
    ("ApiAvailable", "False", "True"): "ApiAvailable",
    ("CapacityShortfallExpected", "", "True"): "CapacityShortfallExpected",
    ("ObjectiveMet", "True", "False"): "ObjectiveMissed",
    ("Suspended", "", "True"): "Suspended",
    ("Suspended", "True", "False"): "Resumed",
}
"""Condition, status before (empty: any other, also of a new queue) and now → event."""

NAMED: Final = {
    "Accepted": tuple(REASONS["Accepted"].keys() - {"Valid"}),
    "Degraded": tuple(REASONS["Degraded"].keys() - {"AsExpected"}),
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
        self._unready, self._parked = Lasting(START_SECONDS), Lasting(PARKED_SECONDS)

    async def report(self, view: View) -> None:
        """Write the status if it changed; rate-limited if only numbers did."""
        resource, now = view.resource, time.time()
        previous = resource.status
        parked = self._parked_seconds(view, now)
        made = status(replace(view, long_parked=parked == NOW), previous, now)
        self._count(resource.key, view, made)
        unready = self._post_unready(resource, made, now)
        wait = wait_seconds(made, previous, now - self._written_at.get(resource.key, 0.0))
        for seconds in filter(None, (parked, unready, wait)):
            self._work.enqueue_in(resource.key, seconds)
        if wait != NOW:
            return
        await self._write(resource, made)
        for reason, message in turned(previous, made):
            self._recorder.post(resource, reason, message)
            if reason == "NotReady":
                self._unready.reported(resource.key)

    def _parked_seconds(self, view: View, now: float) -> float | None:
        """Return when tasks have been parked for long: NOW, or seconds to wait; None without any, or if unknown."""
        if view.backlog is None or not view.backlog.whole:
            return None
        restarted, holds = parked_since(_by_type(view.resource.status)), view.backlog.parked > 0
        return self._parked.wait_seconds(view.resource.key, now, holds=holds, restarted=restarted)

    def _post_unready(self, resource: Resource, made: Mapping[str, Any], now: float) -> float | None:
        """Post an event for a queue that has not become ready in time. Return how long to wait for that."""
        ready, key = _by_type(made)["Ready"], resource.key
        holds, restarted = ready["reason"] in OUT_OF_ORDER, unready_since(ready, now)
        wait = self._unready.wait_seconds(key, now, holds=holds, restarted=restarted)
        if wait == NOW:
            self._recorder.post(resource, "NotReady", _said(ready))
            self._unready.reported(key)
        return wait

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
        self._parked.forget(key)
        self._ready.pop(key, None)
        metrics.forget_workers(key.namespace, key.name)
        metrics.count_ready(self._ready.values())

    def _count(self, key: Key, view: View, made: Mapping[str, Any]) -> None:
        before = self._ready.get(key)
        self._ready[key] = _by_type(made)["Ready"]["status"]
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
        for since in ("", str(old.get("status"))) if entry["status"] != old.get("status") else ():
            if event := TURNED.get((kind, since, entry["status"])):
                yield event, _said(entry) if since == "True" else entry["message"]
        if entry["reason"] != old.get("reason"):
            if entry["reason"] in NAMED.get(kind, ()):
                yield entry["reason"], entry["message"]
            if old.get("reason") in ENDED:
                yield ENDED[old["reason"]]


def _said(condition: Mapping[str, Any]) -> str:
    return f"{condition['reason']}: {condition['message']}"


def _by_type(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the conditions by type; empty while there is no status."""
    found = {entry["type"]: entry for entry in status.get("conditions") or ()}
    return {**ABSENT, **found} if found else {}

"""Events of a DelayQueue: the table of all reasons, and the recorder that posts them.

Posting does not delay or fail a reconciliation: events wait in a bounded queue; an event that does not fit is logged.
The same event within an hour increases the count of the first one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.base.errors import NotFound, OperatorError, Unavailable
from delayq_operator.base.phrases import timestamp

if TYPE_CHECKING:
    from delayq_operator.base.objects import Object
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

REASONS: Final = {
    "Created": (NORMAL, "the children were created for the first time"),
    "RolledOut": (NORMAL, "pods are being replaced, and why"),
    "Repaired": (NORMAL, "a child was changed or deleted by another client; the operator restored it"),
    "Pruned": (NORMAL, "a child that the spec no longer needs was deleted"),
    "ScaledUp": (NORMAL, "the number of workers was raised, and why"),
    "ScaledDown": (NORMAL, "the number of workers was lowered, and why"),
    "Ready": (NORMAL, "tasks run when they are due"),
    "Paused": (NORMAL, "reconciliation is paused: the operator does not change children"),
    "Resumed": (NORMAL, "reconciliation is resumed"),
    "ReshardingStarted": (NORMAL, "tasks will migrate to another number of shards"),
    "ReshardingComplete": (NORMAL, "all tasks are in the number of shards that the spec sets"),
    "GuardAvailable": (NORMAL, "workers can use the guard again"),
    "Erasing": (NORMAL, "the tasks of a deleted DelayQueue are being erased"),
    "Erased": (NORMAL, "the tasks of a deleted DelayQueue are erased"),
    "NotReady": (WARNING, "tasks do not run when they are due, and why; for a new queue after a minute"),
    "InvalidSpec": (WARNING, "the spec is invalid, and at which path"),
    "ReferenceNotFound": (
        WARNING,
        "the spec refers to a Secret, a key of it, or a ConfigMap that does not exist",
    ),
    "PolicyViolation": (WARNING, "the operator's policy does not allow the spec"),
    "RedisNotEmpty": (WARNING, "spec.redis names another Redis while the old one holds tasks"),
    "InvalidAnnotation": (WARNING, "the annotation delayq.dev/paused is neither true nor false"),
    "NameConflict": (WARNING, "an object that the operator does not manage has the name of a child"),
    "OperatorConflict": (WARNING, "another installation of the operator serves the DelayQueue"),
    "QueueConflict": (WARNING, "another DelayQueue uses the same queue in the same Redis"),
    "UnmanagedFields": (WARNING, "another client added containers or privileges to a managed pod template"),
    "ApplyFailed": (WARNING, "the API server rejected a child"),
    "BackendUnavailable": (WARNING, "scanners cannot reach Redis, or not every shard"),
    "ReshardingStalled": (WARNING, "resharding does not progress, and why"),
    "GuardUnavailable": (WARNING, "no worker can use the guard, and what to check"),
    "ObjectiveMissed": (WARNING, "tasks start later than the objective allows, and why"),
    "CapacityShortfallExpected": (
        WARNING,
        "maxReplicas workers will not start upcoming tasks in time",
    ),
    "DurabilityAtRisk": (WARNING, "the settings of Redis can lose tasks"),
    "ProgressDeadlineExceeded": (WARNING, "new pods do not become ready"),
    "PodsRejected": (
        WARNING,
        "the API server rejects pods, and why: a quota, Pod Security, a missing ServiceAccount",
    ),
    "RolloutPaused": (WARNING, "kubectl rollout pause keeps pods of a Deployment from being replaced"),
    "PodsFailing": (WARNING, "a pod does not start or become ready, and its last message"),
    "EraseFailed": (WARNING, "the tasks could not be erased, and what to do"),
}
"""Reason → type, and when it is posted."""

MOST_WAITING: Final = 1000
MOST_REMEMBERED: Final = 4096
REPEAT_SECONDS: Final = 30.0
EXPIRY_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Backoff after attempts that the API server did not answer; their sum is the duration of a Lease."""


@dataclass(slots=True)
class _Series:
    """One event and its count."""

    name: str
    first: float
    last: float
    count: int = 1


class Recorder:
    """Posts events and counts repetitions."""

    def __init__(self, api: Api, instance: str) -> None:
        """`instance` names this operator among its replicas."""
        self._api, self._instance = api, instance
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)
        self._series: OrderedDict[str, _Series] = OrderedDict()

    def post(self, resource: Resource, reason: str, message: str, record: str = "") -> None:
        """Queue an event; `reason` is one of REASONS, `record` the inputs of a scaling decision."""
        now = time.time()
        identity = f"{resource.uid}/{reason}/{message}"
        series = self._series.pop(identity, None)
        if series is None or now - series.first > EXPIRY_SECONDS:
            digest = hashlib.sha256(f"{identity}/{now}".encode()).hexdigest()[:16]
            series = _Series(names.fitted(resource.key.name, 200) + "." + digest, now, now)
        elif now - series.last < REPEAT_SECONDS:
            series.count += 1
            self._series[identity] = series
            return
        else:
            series.count, series.last = series.count + 1, now
        self._series[identity] = series
        while len(self._series) > MOST_REMEMBERED:
            self._series.popitem(last=False)
        event = _event(resource, reason, message, series)
        if record:
            event["metadata"]["annotations"] = {names.DECISION: record}
        self._put(event)

    def _put(self, event: Object) -> None:
        event["reportingInstance"] = self._instance
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            log.warning(
                "event_dropped", extra={"fields": {"reason": event["reason"], "message": event["message"]}}
            )

    async def run(self) -> None:
        """Post queued events until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._post(event)
            except NotFound:
                pass  # the namespace is gone
            except OperatorError as error:
                log.warning(
                    "event_not_posted", extra={"fields": {"reason": event["reason"], "error": str(error)}}
                )

    async def _post(self, event: Object) -> None:
        """Post one event; retry while the API server is unavailable or the Lease is not renewed."""
        for pause in RETRY_SECONDS:
            try:
                await self._api.apply(names.EVENT, event, manager=names.OPERATOR)
            except Unavailable:
                await asyncio.sleep(pause)
            else:
                return
        await self._api.apply(names.EVENT, event, manager=names.OPERATOR)


def _event(resource: Resource, reason: str, message: str, series: _Series) -> Object:
    kind, _ = REASONS[reason]
    return {
        "apiVersion": names.EVENT.api_version,
        "kind": names.EVENT.kind,
        "metadata": {"name": series.name, "namespace": resource.key.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.DELAY_QUEUE.kind,
            "namespace": resource.key.namespace,
            "name": resource.key.name,
            "uid": resource.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:1024],
        "firstTimestamp": timestamp(series.first),
        "lastTimestamp": timestamp(series.last),
        "count": series.count,
        "source": {"component": names.OPERATOR},
        "reportingComponent": names.OPERATOR,
    }

"""What people read in `kubectl describe dq`: every reason in one table, and their way to the API server.

Posting never holds anything up and never fails a reconciliation: events wait in a bounded line, and what does not fit
is logged. The same event again within an hour only counts up the first.
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
from delayq_operator.status.status import timestamp

if TYPE_CHECKING:
    from delayq_operator.base.objects import Object
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

REASONS: Final = {
    "Created": (NORMAL, "the children were made for the first time"),
    "RolledOut": (NORMAL, "pods are being replaced, and why"),
    "Repaired": (NORMAL, "a child was changed or deleted by somebody else, and is as it should be again"),
    "Pruned": (NORMAL, "a child that is not wanted any more was deleted"),
    "ScaledUp": (NORMAL, "more workers are asked for, and why"),
    "ScaledDown": (NORMAL, "fewer workers are asked for, and why"),
    "Ready": (NORMAL, "tasks run when they fall due, from now on"),
    "Paused": (NORMAL, "children are left alone, on request"),
    "Resumed": (NORMAL, "children follow the spec again"),
    "Resharding": (NORMAL, "tasks are to move to another number of shards"),
    "Resharded": (NORMAL, "tasks are where spec.shards says"),
    "GuardAvailable": (NORMAL, "workers can use the guard again"),
    "Erasing": (NORMAL, "the tasks of a deleted DelayQueue are being erased"),
    "Erased": (NORMAL, "they are erased"),
    "NotReady": (WARNING, "tasks do not run when they fall due, and why; of a new queue, after a minute"),
    "InvalidSpec": (WARNING, "the spec was refused, and at which path"),
    "ReferenceNotFound": (
        WARNING,
        "the spec refers to a Secret, a key of it, or a ConfigMap that does not exist",
    ),
    "PolicyViolation": (WARNING, "the operator's policy does not allow what the DelayQueue asks for"),
    "InvalidAnnotation": (WARNING, "the annotation that pauses is neither true nor false"),
    "NameTaken": (WARNING, "an object of somebody else has the name of a child"),
    "ServedTwice": (WARNING, "another installation of the operator claims the DelayQueue"),
    "QueueShared": (WARNING, "another DelayQueue has the same queue in the same Redis"),
    "ForeignFields": (WARNING, "somebody added containers or privileges to our pod templates"),
    "ApplyFailed": (WARNING, "the API server refused a child"),
    "Unreachable": (WARNING, "scanners cannot reach Redis, or not with every shard"),
    "ReshardingStalled": (WARNING, "tasks do not move on to other shards, and what is missing"),
    "GuardUnavailable": (WARNING, "no worker can use the guard, and where to look"),
    "ObjectiveMissed": (WARNING, "tasks begin later than the objective allows, and what keeps them"),
    "CapacityShortfallExpected": (
        WARNING,
        "so many tasks will fall due at once that maxReplicas workers cannot begin them in time",
    ),
    "DurabilityAtRisk": (WARNING, "Redis is set up so that tasks can be lost"),
    "ProgressDeadlineExceeded": (WARNING, "new pods do not get ready"),
    "PodsRejected": (
        WARNING,
        "the API server rejects pods, and why: a quota, Pod Security, a missing ServiceAccount",
    ),
    "RolloutPaused": (WARNING, "kubectl rollout pause keeps pods of a Deployment from being replaced"),
    "PodsFailing": (WARNING, "a pod does not start, or does not get ready, and its last words"),
    "EraseFailed": (WARNING, "the tasks could not be erased, and what to do"),
}
"""Reason → type, and when it is posted."""

MOST_WAITING: Final = 1000
MOST_REMEMBERED: Final = 4096
REPEAT_SECONDS: Final = 30.0
EXPIRY_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses after attempts that the API server did not answer; together as long as a Lease lasts."""


@dataclass(slots=True)
class _Series:
    """One event and how often it was seen."""

    name: str
    first: float
    last: float
    count: int = 1


class Recorder:
    """Posts events, most of them once."""

    def __init__(self, api: Api, instance: str) -> None:
        """`instance` names this operator among its replicas."""
        self._api, self._instance = api, instance
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)
        self._series: OrderedDict[str, _Series] = OrderedDict()

    def post(self, resource: Resource, reason: str, message: str, record: str = "") -> None:
        """Have an event posted; `reason` is one of REASONS, `record` what a decision was made from."""
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
        """Post for ever."""
        while True:
            event = await self._waiting.get()
            try:
                await self._post(event)
            except NotFound:
                pass  # the namespace is gone, and with it whoever would read it
            except OperatorError as error:
                log.warning(
                    "event_not_posted", extra={"fields": {"reason": event["reason"], "error": str(error)}}
                )

    async def _post(self, event: Object) -> None:
        """Post one event; again while the API server is busy or the Lease is not renewed, which ends within seconds."""
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

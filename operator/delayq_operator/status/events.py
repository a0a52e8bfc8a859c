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

from delayq.kube.errors import KubernetesError, NotFound, Unavailable

from delayq_operator.base import names
from delayq_operator.base.phrases import timestamp

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

_NORMAL: Final = (
    "Created RolledOut Repaired Pruned ScaledUp ScaledDown Ready Suspended Resumed ReconciliationSuspended"
    " ReconciliationResumed ReshardingStarted"
    " ReshardingComplete GuardAvailable ApiAvailable Erasing Erased"
)
_WARNING: Final = (
    "NotReady InvalidSpec ReferenceNotFound PolicyViolation RedisNotEmpty InvalidAnnotation"
    " NameConflict OperatorConflict QueueConflict UnmanagedFields ApplyFailed BackendUnavailable"
    " ReshardingStalled GuardUnavailable ApiUnavailable ObjectiveMissed CapacityShortfallExpected"
    " DurabilityAtRisk"
    " ProgressDeadlineExceeded PodsRejected RolloutPaused PodsFailing TasksParked EraseFailed"
)
REASONS: Final = dict.fromkeys(_NORMAL.split(), "Normal") | dict.fromkeys(_WARNING.split(), "Warning")
"""Reason → type. docs/reference/events.md says when each is posted."""

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
        try:
            self._waiting.put_nowait(event | {"reportingInstance": self._instance})
        except asyncio.QueueFull:
            log.warning("event_dropped", extra={"fields": {"reason": reason, "message": event["message"]}})

    async def run(self) -> None:
        """Post queued events until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._post(event)
            except NotFound:
                pass  # the namespace is gone
            except KubernetesError as error:
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
        "type": REASONS[reason],
        "reason": reason,
        "message": message[:1024],
        "firstTimestamp": timestamp(series.first),
        "lastTimestamp": timestamp(series.last),
        "count": series.count,
        "source": {"component": names.OPERATOR},
        "reportingComponent": names.OPERATOR,
    }

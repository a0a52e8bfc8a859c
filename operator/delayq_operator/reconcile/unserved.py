"""Writes the status of DelaySchedules that no scanner serves; scanners write all others."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from delayq.contract.schedule import not_allowed
from delayq.kube.errors import ApiError

from delayq_operator.base import names
from delayq_operator.base.phrases import timestamp

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Key
    from delayq_operator.cache.schedules import Schedule, Schedules
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

NOT_READY: Final = "ScannersNotReady"
REASONS: Final = {
    "QueueNotFound": "False",
    "NotAllowed": "False",
    "NoScanners": "Unknown",
    NOT_READY: "Unknown",
}
"""Reason → status of Accepted, which only a scanner can find out in the last cases. Ready is False."""


async def report_unserved(
    api: Api, schedules: Schedules, key: Key, queue: DelayQueue | None, *, scanners: int = 0
) -> None:
    """Report the schedules of a queue that does not exist, that accepts none, or of whose scanners none is ready.

    A status that a scanner has written stays while `scanners` are 0 for a time, as after a failure of a node.
    """
    reason, message = _why(key, queue, scanners)
    for each in schedules.group(key).values() if reason else ():
        scanned = each.ready[1] not in REASONS | {"": ""}
        if each.ready != ("False", reason, each.generation) and not (reason == NOT_READY and scanned):
            await _write(api, each, reason, message)


def _why(key: Key, queue: DelayQueue | None, scanners: int) -> tuple[str, str]:
    name = f"DelayQueue {key.name}"
    if queue is None:
        return "QueueNotFound", f"{name} not found in namespace {key.namespace}."
    if queue.spec.schedules is None:
        return "NotAllowed", f"{not_allowed(key.name)}."
    if queue.spec.scanner.replicas == 0:
        return "NoScanners", f"spec.scanner.replicas of {name} is 0: no scanner creates occurrences."
    if scanners == 0:
        return NOT_READY, f"No scanner of {name} is ready: see its conditions."
    return "", ""


async def _write(api: Api, schedule: Schedule, reason: str, message: str) -> None:
    common = {
        "observedGeneration": schedule.generation,
        "lastTransitionTime": timestamp(time.time()),
        "reason": reason,
        "message": message,
    }
    accepted = {"type": "Accepted", "status": REASONS[reason], **common}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.DELAY_SCHEDULE.kind,
        "metadata": {"name": schedule.name, "namespace": schedule.namespace, "uid": schedule.uid},
        "status": {"nextTimes": [], "conditions": [accepted, {"type": "Ready", "status": "False", **common}]},
    }
    try:
        await api.apply(names.DELAY_SCHEDULE, body, manager=names.OPERATOR, subresource="status")
    except ApiError as error:  # of one: others must not wait for it
        fields = {"schedule": f"{schedule.namespace}/{schedule.name}", "error": str(error)}
        log.info("schedule_status_not_written", extra={"fields": fields})

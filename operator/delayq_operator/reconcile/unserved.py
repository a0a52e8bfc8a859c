"""Writes the status of DelaySchedules that no scanner serves; scanners write all others."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import ApiError

from delayq_operator.base import names
from delayq_operator.base.phrases import timestamp

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Key
    from delayq_operator.cache.schedules import Schedules
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

NO_QUEUE: Final = "QueueNotFound"
NO_SCANNER: Final = "NoScanner"


class UnservedSchedules:
    """Says why the schedules of a queue are not applied."""

    def __init__(self, api: Api, schedules: Schedules) -> None:
        """`schedules`: the cache that says whether a status says so already."""
        self._api, self._schedules = api, schedules

    async def report(self, key: Key, queue: DelayQueue | None) -> None:
        """Report the schedules of a queue that does not exist, or that has no scanners."""
        if queue is None:
            await self._write(key, NO_QUEUE, f"DelayQueue {key.name} not found in namespace {key.namespace}.")
        elif queue.spec.scanner.replicas == 0:
            why = f"spec.scanner.replicas of DelayQueue {key.name} is 0: no scanner creates occurrences."
            await self._write(key, NO_SCANNER, why)

    async def _write(self, key: Key, reason: str, message: str) -> None:
        for each in self._schedules.of(key):
            if each.ready == ("False", reason, each.generation):
                continue
            condition = {
                "type": "Ready",
                "status": "False",
                "observedGeneration": each.generation,
                "lastTransitionTime": timestamp(time.time()),
                "reason": reason,
                "message": message,
            }
            body = {
                "apiVersion": names.API_VERSION,
                "kind": names.DELAY_SCHEDULE.kind,
                "metadata": {"name": each.name, "namespace": each.namespace, "uid": each.uid},
                "status": {"nextTimes": [], "conditions": [condition]},
            }
            try:
                await self._api.apply(
                    names.DELAY_SCHEDULE, body, manager=names.OPERATOR, subresource="status"
                )
            except ApiError as error:  # of one: others must not wait for it
                fields = {"schedule": f"{each.namespace}/{each.name}", "error": str(error)}
                log.info("schedule_status_not_written", extra={"fields": fields})

"""Applies a number of workers: prepares victims, writes the replicas, and informs the autoscaler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq_operator.base.names import Key
    from delayq_operator.cache.children import Child
    from delayq_operator.cache.resource import Resource
    from delayq_operator.reconcile.apply import Applier, Outcome
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scaling.scaling import Scale
    from delayq_operator.scaling.victims import Victims


class Scaler:
    """Scales the workers of all queues."""

    def __init__(self, applier: Applier, autoscaler: Autoscaler, *, victims: Victims) -> None:
        """Every part is shared by all queues."""
        self._applier, self._autoscaler = applier, autoscaler
        self._victims = victims

    async def scale(self, resource: Resource, worker: Child, scale: Scale, outcome: Outcome) -> None:
        """Write the replicas; a lower number only after the deletion costs of the victims are set."""
        key, asked = resource.key, worker.body["spec"].get("replicas", 1)
        if asked > scale.replicas and not self._victims.prepared(key, scale.replicas):
            return
        await self._applier.scale(resource, worker, scale, outcome)
        if outcome.scaled is None:
            if asked != scale.replicas:
                self._autoscaler.refused(key, scale.replicas)
            return
        self._victims.forget(key)
        if scale.decision is not None:
            self._autoscaler.carried_out(key, scale.decision, time.time())

    def forget(self, key: Key) -> None:
        """Drop the state of a queue that is gone."""
        self._victims.forget(key)
        self._autoscaler.forget(key)

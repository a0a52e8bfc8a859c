"""Applies a number of workers: prepares victims, writes the replicas, and informs the autoscaler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from delayq.scaling import recorded

from delayq_operator.base import names
from delayq_operator.reconcile.apply import REFUSED

if TYPE_CHECKING:
    from delayq_operator.base.names import Key
    from delayq_operator.cache.children import Child
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.apply import Outcome
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scaling.scaling import Scale
    from delayq_operator.scaling.victims import Victims

UP: Final = "ScaledUp"
DOWN: Final = "ScaledDown"


class Scaler:
    """Scales the workers of all queues."""

    def __init__(self, api: Api, inventory: Inventory, autoscaler: Autoscaler, victims: Victims) -> None:
        """Every part is shared by all queues. Responses of the API server update `inventory` at once."""
        self._api, self._inventory, self._autoscaler, self._victims = api, inventory, autoscaler, victims

    async def scale(self, resource: Resource, worker: Child, scale: Scale, outcome: Outcome) -> None:
        """Write the replicas; a lower number only after the deletion costs of the victims are set."""
        key, before = resource.key, worker.body["spec"].get("replicas", 1)
        if before > scale.replicas and not self._victims.prepared(key, scale.replicas):
            return
        if before == scale.replicas and worker.scaled:
            return
        try:
            await self._write(resource, worker, scale.replicas)
        except REFUSED as error:
            outcome.failures.append(f"replicas of Deployment {worker.name}: {error.message.rstrip('.')}.")
            if before != scale.replicas:
                self._autoscaler.refused(key, scale.replicas)
            return
        if before != scale.replicas:
            outcome.scaled = _event(before, scale)
            self._victims.forget(key)
            if scale.decision is not None:
                self._autoscaler.carried_out(key, scale.decision, time.time())

    async def _write(self, resource: Resource, worker: Child, replicas: int) -> None:
        """Write with the scaler's own field manager."""
        namespace = resource.key.namespace
        wanted = {
            "apiVersion": names.DEPLOYMENT.api_version,
            "kind": names.DEPLOYMENT.kind,
            "metadata": {"name": worker.name, "namespace": namespace, "uid": worker.uid},
            "spec": {"replicas": replicas},
        }
        written = await self._api.apply(names.DEPLOYMENT, wanted, manager=names.SCALER)
        self._inventory.seen(names.DEPLOYMENT, written)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue that is gone."""
        self._victims.forget(key)
        self._autoscaler.forget(key)


def _event(before: int, scale: Scale) -> tuple[str, str, str]:
    """Return reason, message, and the inputs of the decision: none if the operator did not decide."""
    reason = UP if scale.replicas > before else DOWN
    if scale.decision is None:
        return reason, f"{before} → {scale.message}", ""
    return reason, scale.message, recorded(scale.decision)

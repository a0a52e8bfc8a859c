"""Gives an HPA or KEDA a number of workers to start from, once.

In mode External the number is theirs, in spec.worker.replicas. While it is absent the scale subresource cannot even be
read, so that they would never begin; and who wrote it into a manifest would reset it with every apply. Deployments
have a default for this; ours would be refused beside an autoscaler of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.reconcile.apply import REFUSED

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.apply import Outcome
    from delayq_operator.scaling.scaling import Scale


class Handover:
    """Writes the first number."""

    def __init__(self, api: Api) -> None:
        """Nothing is written yet."""
        self._api = api

    async def begin(self, resource: Resource, queue: DelayQueue, scale: Scale, outcome: Outcome) -> None:
        """Write the number of workers there are into the spec, if nobody did. Conflict when the copy is old."""
        if scale.reason != "External" or queue.spec.worker.replicas is not None:
            return
        wanted = {
            "apiVersion": names.API_VERSION,
            "kind": names.DELAY_QUEUE.kind,
            "metadata": {
                "name": resource.key.name,
                "namespace": resource.key.namespace,
                "uid": resource.uid,
                "resourceVersion": resource.version,  # somebody may have written another meanwhile
            },
            "spec": {"worker": {"replicas": scale.replicas}},
        }
        try:
            await self._api.apply(names.DELAY_QUEUE, wanted, manager=names.SCALER, force=False)
        except REFUSED as error:
            outcome.failures.append(f"spec.worker.replicas, for an HPA to start from: {error.message}.")

"""The headless Service in front of the metrics: one DNS record for each pod, ready or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts


def service(queue: DelayQueue, facts: Facts) -> Object:
    """Return the Service. It also publishes pods that are not ready: their metrics show why."""
    name = queue.metadata.name
    port = {"name": names.METRICS_PORT_NAME, "port": names.METRICS_PORT, "protocol": "TCP"}
    return child(
        names.SERVICE,
        queue,
        facts,
        name=names.metrics_service(name),
        component="metrics",
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.QUEUE_LABEL: names.label_value(name)},
            "ports": [{**port, "targetPort": names.METRICS_PORT_NAME}],
        },
    )

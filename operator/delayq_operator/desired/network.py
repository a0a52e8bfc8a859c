"""The NetworkPolicy of a queue's pods: nothing may connect to them but to read metrics, and the operator always may.

What they may connect to is not limited: Redis may be anywhere, a handler calls whatever its author likes, and a policy
that is one address short of the truth fails at night. Whoever wants it limited writes a second policy; policies add up.
Probes come from the node itself, which a policy does not keep out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract.freeform import copy

from delayq_operator import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting


def policy(queue: DelayQueue, setting: Setting, facts: Facts) -> Object | None:
    """Make the policy, if it is wanted."""
    wanted = queue.spec.network_policy
    if not wanted.enabled:
        return None
    metrics: Object = {"ports": [{"port": names.METRICS_PORT, "protocol": "TCP"}]}
    if wanted.metrics_from is not None:
        metrics["from"] = [*_operator(setting), *(copy(peer) for peer in wanted.metrics_from)]
    return child(
        names.NETWORK_POLICY,
        queue,
        facts,
        name=names.pods(queue.metadata.name),
        component="pods",
        spec={
            "podSelector": {"matchLabels": {names.QUEUE_LABEL: names.label_value(queue.metadata.name)}},
            "policyTypes": ["Ingress"],
            "ingress": [metrics],
        },
    )


def _operator(setting: Setting) -> list[Object]:
    """Make the peer that is the operator itself: without the scanners' metrics it knows nothing of the queue."""
    if setting.own_namespace is None:
        return []
    namespace = {"kubernetes.io/metadata.name": setting.own_namespace}
    peer: Object = {"namespaceSelector": {"matchLabels": namespace}}
    if setting.own_labels:
        peer["podSelector"] = {"matchLabels": dict(setting.own_labels)}
    return [peer]

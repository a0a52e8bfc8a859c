"""The NetworkPolicy of a queue's pods.

Where the document asks for it, nothing may connect to them but to read metrics, and the operator always may.
Everywhere, the operator alone may connect to the port of scanners that answers horizons, each of which costs Redis.

What they may connect to is not limited: Redis may be anywhere, a handler calls whatever its author likes, and a policy
that is one address short of the truth fails later. To limit egress, add a second policy; policies add up.
Probes come from the node itself, which a policy does not keep out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract.freeform import copy

from delayq_operator.base import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting


def policy(queue: DelayQueue, setting: Setting, facts: Facts) -> Object | None:
    """Make the policy that is asked for; without one, the least: horizons of scanners are the operator's alone."""
    name = queue.metadata.name
    operator = _operator(setting)
    horizons: Object = {"ports": [_tcp(names.HORIZONS_PORT)], **({"from": operator} if operator else {})}
    if queue.spec.network_policy.enabled:
        selected, rules = {names.QUEUE_LABEL: names.label_value(name)}, [_metrics(queue, operator), horizons]
    elif operator:
        selected, rules = names.selector(name, "scanner"), [_all_but_horizons(), horizons]
    else:
        return None
    return child(
        names.NETWORK_POLICY,
        queue,
        facts,
        name=names.pods(name),
        component="pods",
        spec={"podSelector": {"matchLabels": selected}, "policyTypes": ["Ingress"], "ingress": rules},
    )


def _metrics(queue: DelayQueue, operator: list[Object]) -> Object:
    ports: Object = {"ports": [_tcp(names.METRICS_PORT)]}
    peers = queue.spec.network_policy.metrics_from
    return ports if peers is None else {**ports, "from": [*operator, *(copy(peer) for peer in peers)]}


def _all_but_horizons() -> Object:
    """Let in all else, for containers that users add: a pod that no policy selects is open, one that is is not."""
    below = {**_tcp(1), "endPort": names.HORIZONS_PORT - 1}
    above = {**_tcp(names.HORIZONS_PORT + 1), "endPort": 65535}
    return {"ports": [below, above, {"protocol": "UDP"}, {"protocol": "SCTP"}]}


def _tcp(port: int) -> Object:
    return {"port": port, "protocol": "TCP"}


def _operator(setting: Setting) -> list[Object]:
    """Make the peer that is the operator itself: without the scanners' metrics it knows nothing of the queue."""
    if setting.own_namespace is None:
        return []
    namespace = {"kubernetes.io/metadata.name": setting.own_namespace}
    peer: Object = {"namespaceSelector": {"matchLabels": namespace}}
    if setting.own_labels:
        peer["podSelector"] = {"matchLabels": dict(setting.own_labels)}
    return [peer]

"""The NetworkPolicy of a queue's pods.

If the document asks for it, the policy allows ingress to the metrics port and to the HTTP API only. The operator may
always read metrics.
In any case, only the operator may connect to the horizons port of scanners, where each request costs Redis.

Egress is not limited: Redis may be anywhere, and a handler may call any address. To limit egress, add a second policy;
policies are additive. Probes come from the node, which policies do not block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract.trees import copy

from delayq_operator.base import names
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.desired.facts import Facts, Setting


def policy(queue: DelayQueue, setting: Setting, facts: Facts) -> Object | None:
    """Return the policy that the spec asks for; otherwise one that protects the horizons port of scanners only."""
    name = queue.metadata.name
    operator = _operator(setting)
    horizons: Object = {"ports": [_tcp(names.HORIZONS_PORT)], **({"from": operator} if operator else {})}
    if queue.spec.network_policy.enabled:
        selected = {names.QUEUE_LABEL: names.label_value(name)}
        rules = [_metrics(queue, operator), horizons, *_api(queue)]
    elif operator:
        selected, rules = names.selector(name, "scanner"), [_all_but_horizons(), horizons]
    else:
        return None
    spec = {"podSelector": {"matchLabels": selected}, "policyTypes": ["Ingress"], "ingress": rules}
    return child(names.NETWORK_POLICY, "pods", queue, facts, spec=spec)


def _metrics(queue: DelayQueue, operator: list[Object]) -> Object:
    ports: Object = {"ports": [_tcp(names.METRICS_PORT)]}
    peers = queue.spec.network_policy.metrics_from
    return ports if peers is None else {**ports, "from": [*operator, *(copy(peer) for peer in peers)]}


def _api(queue: DelayQueue) -> list[Object]:
    """Allow connections to the HTTP API: anyone's, unless the document names them. Only its pods listen there."""
    if queue.spec.api is None:
        return []
    ports: Object = {"ports": [_tcp(names.API_PORT)]}
    peers = queue.spec.network_policy.api_from
    return [ports if peers is None else {**ports, "from": [copy(peer) for peer in peers]}]


def _all_but_horizons() -> Object:
    """Allow all other ports, for containers that users add: a policy denies by default."""
    below = {**_tcp(1), "endPort": names.HORIZONS_PORT - 1}
    above = {**_tcp(names.HORIZONS_PORT + 1), "endPort": 65535}
    return {"ports": [below, above, {"protocol": "UDP"}, {"protocol": "SCTP"}]}


def _tcp(port: int) -> Object:
    return {"port": port, "protocol": "TCP"}


def _operator(setting: Setting) -> list[Object]:
    """Return the operator as a peer: it needs the scanners' metrics."""
    if setting.own_namespace is None:
        return []
    namespace = {"kubernetes.io/metadata.name": setting.own_namespace}
    peer: Object = {"namespaceSelector": {"matchLabels": namespace}}
    if setting.own_labels:
        peer["podSelector"] = {"matchLabels": dict(setting.own_labels)}
    return [peer]

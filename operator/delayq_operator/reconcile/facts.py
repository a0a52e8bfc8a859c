"""Gathers the inputs of desired objects besides the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.base.objects import mapping
from delayq_operator.cache.issuer import Issuer
from delayq_operator.desired.facts import Facts
from delayq_operator.reconcile.plan import inputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue

    from delayq_operator.cache.children import Child
    from delayq_operator.cache.resource import Resource


class FactSource:
    """Tells what one queue depends on."""

    def __init__(self) -> None:
        """No optional kind is served before its first list."""
        self.kinds: frozenset[str] = frozenset()  # optional kinds that the API serves
        self.issuer = Issuer()
        self.installation = ""  # written into ConfigMaps as this operator's claim

    def of(self, resource: Resource, children: Mapping[tuple[str, str], Child]) -> Facts:
        """Gather the facts about one queue."""
        needs = "api" in mapping(resource.body.get("spec"))
        (self.issuer.asking.add if needs else self.issuer.asking.discard)(resource.key)
        return Facts(
            uid=resource.uid,
            namespace=resource.key.namespace,
            installation=self.installation,
            generation=resource.generation,
            kinds=self.kinds,
            issuer_keys=self.issuer.keys or stored_keys(resource.key.name, children),
            inputs=started_with(resource.key.name, children),
        )


def stored_keys(queue_name: str, children: Mapping[tuple[str, str], Child]) -> str:
    """Return the keys that an operator has stored before: they stay while the API server does not tell them."""
    child = children.get((names.CONFIG_MAP.kind, names.api(queue_name)))
    data = (child.body.get("data") if child is not None and child.owner_uid else None) or {}
    return str(data.get(names.ISSUER_KEY, ""))


def unserved(queue: DelayQueue, facts: Facts) -> tuple[str, ...]:
    """Name the optional kinds that a queue asks for and the cluster does not serve."""
    monitoring = queue.spec.monitoring
    asked = {
        names.POD_MONITOR.kind: monitoring.pod_monitor.enabled,
        names.PROMETHEUS_RULE.kind: monitoring.prometheus_rule.enabled,
    }
    return tuple(kind for kind, enabled in asked.items() if enabled and kind not in facts.kinds)


def started_with(queue_name: str, children: Mapping[tuple[str, str], Child]) -> dict[str, dict[str, str]]:
    """Return the inputs that the pods of each component last started with."""
    found = {
        component: children.get((names.DEPLOYMENT.kind, names.deployment(queue_name, component)))
        for component in ("scanner", "worker", "api")
    }
    return {component: inputs_of(child.body) for component, child in found.items() if child is not None}

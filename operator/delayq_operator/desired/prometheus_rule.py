"""The PrometheusRule of a queue, where the Prometheus operator is installed. Not here: which alerts there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract.alerts import rules

from delayq_operator.base import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts


def prometheus_rule(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the rule, if the spec enables it."""
    rule = queue.spec.monitoring.prometheus_rule
    if not rule.enabled or names.PROMETHEUS_RULE.kind not in facts.kinds:
        return None
    name = queue.metadata.name
    return child(
        names.PROMETHEUS_RULE,
        queue,
        facts,
        name=names.pods(name),
        component="monitoring",
        labels=rule.labels,
        spec={
            "groups": [{"name": f"delayq.{facts.namespace}.{name}", "rules": rules(queue, facts.namespace)}]
        },
    )

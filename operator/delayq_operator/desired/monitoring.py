"""The PodMonitor and the PrometheusRule of a queue, where the Prometheus operator is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract.alerts import rules

from delayq_operator.base import names
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.desired.facts import Facts

SAMPLE_LIMIT: Final = 10_000
BODY_SIZE_LIMIT: Final = "4MB"


def pod_monitor(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the PodMonitor of scanners, workers and the API. Reapers end between two scrapes."""
    monitor, name = queue.spec.monitoring.pod_monitor, queue.metadata.name
    scraped = ["scanner", "worker", *(["api"] if queue.spec.api else [])]
    if not monitor.enabled or names.POD_MONITOR.kind not in facts.kinds:
        return None
    return child(
        names.POD_MONITOR,
        "monitoring",
        queue,
        facts,
        labels=monitor.labels,
        spec={
            "selector": {
                "matchLabels": {names.QUEUE_LABEL: names.label_value(name)},
                "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "In", "values": scraped}],
            },
            # The author of a DelayQueue controls its pods: limits protect a shared Prometheus.
            "sampleLimit": SAMPLE_LIMIT,
            "bodySizeLimit": BODY_SIZE_LIMIT,
            "podMetricsEndpoints": [
                {
                    "port": names.METRICS_PORT_NAME,
                    "path": "/metrics",
                    "interval": f"{monitor.interval_seconds}s",
                }
            ],
        },
    )


def prometheus_rule(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the PrometheusRule; `delayq.contract.alerts` has the alerts."""
    rule, name = queue.spec.monitoring.prometheus_rule, queue.metadata.name
    if not rule.enabled or names.PROMETHEUS_RULE.kind not in facts.kinds:
        return None
    group = {"name": f"delayq.{facts.namespace}.{name}", "rules": rules(queue, facts.namespace)}
    spec = {"groups": [group]}
    return child(names.PROMETHEUS_RULE, "monitoring", queue, facts, labels=rule.labels, spec=spec)

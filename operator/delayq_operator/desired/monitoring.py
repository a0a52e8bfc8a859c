"""The PodMonitor and the PrometheusRule of a queue, where the Prometheus operator is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract import metrics

from delayq_operator import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract import DelayQueue
    from delayq.contract.metrics import Metric

    from delayq_operator.desired.facts import Facts

LEADERLESS_SECONDS: Final = (
    60  # leadership runs out after 10 s; a rollout of all scanners takes less than a minute
)
RUNBOOK: Final = "See docs/operations.md, “When something is wrong”."


def pod_monitor(queue: DelayQueue, facts: Facts) -> Object | None:
    """Have scanners and workers scraped. Reapers come and go between two scrapes."""
    monitor = queue.spec.monitoring.pod_monitor
    if not monitor.enabled or names.POD_MONITOR.kind not in facts.kinds:
        return None
    name = queue.metadata.name
    return child(
        names.POD_MONITOR,
        queue,
        facts,
        name=names.pods(name),
        component="monitoring",
        labels=monitor.labels,
        spec={
            "selector": {
                "matchLabels": {names.QUEUE_LABEL: names.label_value(name)},
                "matchExpressions": [
                    {"key": names.COMPONENT_LABEL, "operator": "In", "values": ["scanner", "worker"]}
                ],
            },
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
    """Have somebody told when the queue does not keep its promises."""
    rule = queue.spec.monitoring.prometheus_rule
    if not rule.enabled or names.PROMETHEUS_RULE.kind not in facts.kinds:
        return None
    name = queue.metadata.name
    group = {"name": f"delayq.{facts.namespace}.{name}", "rules": list(_alerts(queue, facts))}
    return child(
        names.PROMETHEUS_RULE,
        queue,
        facts,
        name=names.pods(name),
        component="monitoring",
        labels=rule.labels,
        spec={"groups": [group]},
    )


def _alerts(queue: DelayQueue, facts: Facts) -> Iterator[Object]:
    def of(metric: Metric, *more: str) -> str:
        own = (f'namespace="{facts.namespace}"', f'queue="{queue.queue}"', *more)
        return f"{metric.name}{{{','.join(own)}}}"

    def alert(name: str, expr: str, *, seconds: int, severity: str, summary: str) -> Object:
        return {
            "alert": f"DelayQueue{name}",
            "expr": expr,
            **({"for": f"{seconds}s"} if seconds else {}),
            "labels": {
                "severity": severity,
                "namespace": facts.namespace,
                "delayqueue": queue.metadata.name,
            },
            "annotations": {
                "summary": f"DelayQueue {facts.namespace}/{queue.metadata.name}: {summary}",
                "description": RUNBOOK,
            },
        }

    late = queue.spec.objective.lateness_seconds
    yield alert(
        "Late",
        f"max({of(metrics.OLDEST_OVERDUE_SECONDS)}) > {late}",
        seconds=120,
        severity="warning",
        summary=f"a task has been due for longer than its objective of {late} s.",
    )
    yield alert(
        "DeadLetters",
        f"sum(increase({of(metrics.QUEUE_BURIED)}[15m])) > 0",
        seconds=0,
        severity="warning",
        summary="tasks became dead letters within the last 15 minutes.",
    )
    yield alert(
        "RedisDown",
        f"max({of(metrics.REDIS_UP)}) == 0",
        seconds=60,
        severity="critical",
        summary="no scanner reaches Redis: no task is started.",
    )
    yield alert(
        "DurabilityAtRisk",
        f"max by (risk) ({of(metrics.DURABILITY_RISK)}) == 1",
        seconds=300,
        severity="warning",
        summary="Redis may lose tasks: {{ $labels.risk }}.",
    )
    if queue.spec.scanner.replicas:
        led = f"sum(max by (shard) ({of(metrics.SHARD_LED)}))"
        yield alert(
            "Leaderless",
            f"({led} or vector(0)) < {queue.spec.shards}",
            seconds=LEADERLESS_SECONDS,
            severity="critical",
            summary="no scanner leads some shard: tasks start late by up to maxBlockMilliseconds.",
        )

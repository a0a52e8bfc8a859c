"""The PrometheusRule of a queue, where the Prometheus operator is installed: who is told of a broken promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics

from delayq_operator import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.contract import DelayQueue
    from delayq.contract.metrics import Metric

    from delayq_operator.desired.facts import Facts

RUNBOOK: Final = "See docs/operations.md, “When something is wrong”."


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert."""

    name: str
    """What follows DelayQueue in its name."""
    expr: str
    seconds: int
    """How long it must be so."""
    severity: str
    summary: str


def prometheus_rule(queue: DelayQueue, facts: Facts) -> Object | None:
    """Make the rule, if it is wanted."""
    rule = queue.spec.monitoring.prometheus_rule
    if not rule.enabled or names.PROMETHEUS_RULE.kind not in facts.kinds:
        return None
    name = queue.metadata.name
    rules = [_rule(alert, facts.namespace, name) for alert in _alerts(queue, facts)]
    return child(
        names.PROMETHEUS_RULE,
        queue,
        facts,
        name=names.pods(name),
        component="monitoring",
        labels=rule.labels,
        spec={"groups": [{"name": f"delayq.{facts.namespace}.{name}", "rules": rules}]},
    )


def _rule(alert: Alert, namespace: str, name: str) -> Object:
    return {
        "alert": f"DelayQueue{alert.name}",
        "expr": alert.expr,
        **({"for": f"{alert.seconds}s"} if alert.seconds else {}),
        "labels": {"severity": alert.severity, "namespace": namespace, "delayqueue": name},
        "annotations": {
            "summary": f"DelayQueue {namespace}/{name}: {alert.summary}",
            "description": RUNBOOK,
        },
    }


def _alerts(queue: DelayQueue, facts: Facts) -> Iterator[Alert]:
    def of(metric: Metric) -> str:
        return f'{metric.name}{{namespace="{facts.namespace}",queue="{queue.queue}"}}'

    yield _late(of(metrics.OLDEST_OVERDUE_SECONDS), queue.spec.objective.lateness_seconds)
    yield _dead_letters(of(metrics.QUEUE_BURIED))
    yield _redis_down(of(metrics.REDIS_UP))
    yield _at_risk(of(metrics.DURABILITY_RISK))
    if queue.spec.guard is not None and queue.spec.guard.none is None:
        yield _guard_down(of(metrics.WORKER_GUARD_UP))
    if queue.spec.reaper.check is not None:
        yield _checks_fail(of(metrics.QUEUE_CHECKS_FAILED))
        yield _awaits_verdict(of(metrics.LAPSED_TASKS))
    if queue.spec.scanner.replicas:
        yield _leaderless(of(metrics.SHARD_LED), of(metrics.LAYOUT_SHARDS), queue.spec.shards)
        yield _not_served(of(metrics.SHARD_DOWN), of(metrics.SHARD_LED))
        yield _resharding_stalled(of, queue.spec.shards)


def _late(oldest: str, seconds: int) -> Alert:
    return Alert(
        name="Late",
        expr=f"max({oldest}) > {seconds}",
        seconds=120,
        severity="warning",
        summary=f"a task has been due for longer than its objective of {seconds} s.",
    )


def _dead_letters(buried: str) -> Alert:
    return Alert(
        name="DeadLetters",
        expr=f"sum(increase({buried}[15m])) > 0",
        seconds=0,
        severity="warning",
        summary="tasks became dead letters within the last 15 minutes.",
    )


def _redis_down(up: str) -> Alert:
    return Alert(
        name="RedisDown",
        expr=f"max({up}) == 0",
        seconds=60,
        severity="critical",
        summary="no scanner reaches Redis: no task is started.",
    )


def _at_risk(risk: str) -> Alert:
    return Alert(
        name="DurabilityAtRisk",
        expr=f"max by (risk) ({risk}) == 1",
        seconds=300,
        severity="warning",
        summary="Redis may lose tasks: {{ $labels.risk }}.",
    )


def _guard_down(up: str) -> Alert:
    return Alert(
        name="GuardDown",
        expr=f"max({up}) == 0",
        seconds=60,
        severity="critical",
        summary="no worker can use the guard: no task is started.",
    )


def _checks_fail(failed: str) -> Alert:
    # One that fails now and then is asked again; one that always does leaves tasks waiting, or worse.
    return Alert(
        name="ChecksFail",
        expr=f"sum(increase({failed}[5m])) > 0",
        seconds=300,
        severity="warning",
        summary="the check gives no verdict on tasks whose lease ran out: reaper.check.onFailure decides.",
    )


def _awaits_verdict(lapsed: str) -> Alert:
    # A check that can tell leaves none for longer than it takes to ask; `wait` may be its answer without end.
    return Alert(
        name="AwaitsVerdict",
        expr=f"sum({lapsed}) > 0",
        seconds=1800,
        severity="warning",
        summary="there have been tasks whose lease ran out, and on which the check has not decided, for half an hour.",
    )


def _leaderless(led: str, layout: str, shards: int) -> Alert:
    # Leadership runs out within seconds; a rollout of all scanners takes less than a minute. While their number
    # changes, there are as many as the largest that is told; scanners that tell of none are of an older version.
    return Alert(
        name="Leaderless",
        expr=f"(sum(max by (shard) ({led})) or vector(0)) < (max({layout}) or vector({shards}))",
        seconds=60,
        severity="critical",
        summary="no scanner leads some shard: tasks start late by up to maxBlockMilliseconds.",
    )


def _not_served(down: str, led: str) -> Alert:
    # One scanner may be cut off from a server that serves another, which leads its shards then.
    return Alert(
        name="ShardsNotServed",
        expr=f"count(max by (shard) ({down}) unless on (shard) (max by (shard) ({led}) == 1)) > 0",
        seconds=60,
        severity="critical",
        summary="Redis does not serve {{ $value }} of its shards: none of their tasks is started.",
    )


def _resharding_stalled(of: Callable[[Metric], str], shards: int) -> Alert:
    layout, checked = of(metrics.LAYOUT_SHARDS), of(metrics.RESHARD_CHECKED_TASKS)

    def told(which: str) -> str:
        return f'max({layout[:-1]},layout="{which}"}})'

    still = f"(sum(changes({checked}[15m])) or vector(0)) == 0"
    return Alert(
        name="ReshardingStalled",
        expr=f"{told('target')} != {shards} or ({told('was')} != {told('target')} and {still})",
        seconds=900,
        severity="warning",
        summary=f"tasks do not get on to {shards} shards.",
    )

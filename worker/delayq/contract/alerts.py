"""The alerts of a queue, as data. The operator writes them as a PrometheusRule, `delayq alerts` as a rule file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from delayq.contract import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.limits import Objective
    from delayq.contract.metrics import Metric
    from delayq.contract.queue import DelayQueue

    class Selector(Protocol):
        """Returns PromQL's selector of a metric of the queue, with `more` labels."""

        def __call__(self, metric: Metric, more: str = "") -> str: ...


RUNBOOKS: Final = "https://github.com/delayq/delayq/blob/main/docs/runbooks"
"""URL of the folder with a page for each alert, `<Alert>.md`."""

DEAD_LETTERS: Final = 10
"""DelayQueueDeadLetters fires above this number an hour."""
API_ERROR_PERCENT: Final = 1
"""DelayQueueApiErrors fires above this share of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert."""

    name: str
    """Its name without the prefix DelayQueue."""
    expr: str
    seconds: int
    """How long the expression must be true."""
    severity: str
    summary: str


def rules(queue: DelayQueue, namespace: str | None) -> list[dict[str, Any]]:
    """Return Prometheus' alerting rules for a queue. `namespace`: None outside Kubernetes."""
    place = {} if namespace is None else {"namespace": namespace}
    name = queue.metadata.name
    shown = name if namespace is None else f"{namespace}/{name}"
    return [
        {
            "alert": f"DelayQueue{alert.name}",
            "expr": alert.expr,
            **({"for": f"{alert.seconds}s"} if alert.seconds else {}),
            "labels": {"severity": alert.severity, **place, "delayqueue": name},
            "annotations": {
                "summary": f"DelayQueue {shown}: {alert.summary}",
                "runbook_url": f"{RUNBOOKS}/DelayQueue{alert.name}.md",
            },
        }
        for alert in _alerts(queue, place)
    ]


def _alerts(queue: DelayQueue, place: dict[str, str]) -> Iterator[Alert]:
    labels = ",".join(f'{name}="{value}"' for name, value in {**place, "queue": queue.queue}.items())

    def of(metric: Metric, more: str = "") -> str:
        return f"{metric.name}{{{labels}{more}}}"

    yield _late(of, queue.spec.objective)
    yield from _of_every_queue(of)
    if queue.spec.guard is not None:
        yield Alert(
            name="GuardDown",
            expr=f"max({of(metrics.WORKER_GUARD_UP)}) == 0",
            seconds=60,
            severity="critical",
            summary="no worker can use the guard: no task starts.",
        )
    if queue.spec.api is not None and queue.spec.api.replicas:
        yield from _of_api(of)
    if queue.spec.recovery.check is not None:
        yield from _of_checks(of)
    if queue.spec.scanner.replicas:
        yield from _of_scanners(of, queue.spec.shards)


def _late(of: Selector, objective: Objective) -> Alert:
    # Same as condition ObjectiveMet: tasks that started within the window, and late due tasks. `for` is
    # longer than the window: in a queue of few tasks, a single late task is more than one percent.
    seconds, share = objective.lateness_seconds, objective.late_percent
    begun, in_time = _begun(of, "+Inf"), _begun_within(of, seconds)
    overdue, oldest = of(metrics.TASKS)[:-1] + ',state="due"}', of(metrics.OLDEST_DUE_SECONDS)
    waiting = f"(sum({overdue}) * clamp_min(1 - {seconds:g} / max({oldest}), 0) or vector(0))"
    return Alert(
        name="Late",
        expr=f"({begun} - {in_time} + {waiting}) > {share / 100:g} * ({begun} + {waiting})",
        seconds=360,
        severity="warning",
        summary=f"more than {share:g} % of its tasks were late by more than {seconds:g} s in the last 5 minutes.",
    )


def _begun_within(of: Selector, seconds: float) -> str:
    """Count tasks that started in time. Interpolates within a bucket; beyond the last, counts all."""
    bounds = metrics.LATENESS_BUCKETS
    below = max((each for each in bounds if each <= seconds), default=0.0)
    above = min((each for each in bounds if each >= seconds), default=0.0)
    if below == above:
        return _begun(of, str(below))
    if not above:
        return _begun(of, "+Inf")
    low, part = _begun(of, str(below)), (seconds - below) / (above - below)
    return f"({low} + {part:.4g} * ({_begun(of, str(above))} - {low}))"


def _begun(of: Selector, le: str) -> str:
    name, _, selector = of(metrics.WORKER_DUE_TO_CLAIMED).partition("{")
    return f'(sum(increase({name}_bucket{{{selector[:-1]},le="{le}"}}[5m])) or vector(0))'


def _of_every_queue(of: Selector) -> Iterator[Alert]:
    yield Alert(
        name="DeadLetters",
        # A single dead letter fires no alert: it waits for a redrive.
        expr=f"sum(increase({of(metrics.QUEUE_BURIED)}[1h])) > {DEAD_LETTERS}",
        seconds=300,
        severity="warning",
        summary=f"more than {DEAD_LETTERS} tasks became dead letters within the last hour.",
    )
    yield Alert(
        name="RedisDown",
        expr=f"max({of(metrics.REDIS_UP)}) == 0",
        seconds=60,
        severity="critical",
        summary="no scanner reaches Redis: no task starts.",
    )
    risk = of(metrics.DURABILITY_RISK, ',risk!="fsync_unknown"')
    yield Alert(
        name="DurabilityAtRisk",
        expr=f"max by (risk) ({risk}) == 1",
        seconds=300,
        severity="warning",
        summary="Redis may lose tasks: {{ $labels.risk }}.",
    )


def _of_api(of: Selector) -> Iterator[Alert]:
    up = of(metrics.REDIS_ERRORS, ',process="api"')  # a metric that each API process has from its start on
    yield Alert(
        name="ApiDown",
        expr=f"absent({up})",
        seconds=120,
        severity="critical",
        summary="no process of the HTTP API answers: programs that use it cannot schedule tasks.",
    )
    failed, all_requests = of(metrics.API_REQUESTS, ',status=~"5.."'), of(metrics.API_REQUESTS)
    share = API_ERROR_PERCENT / 100
    yield Alert(
        name="ApiErrors",
        expr=f"sum(increase({failed}[5m])) > {share:g} * sum(increase({all_requests}[5m]))",
        seconds=300,
        severity="warning",
        summary=f"the HTTP API answered more than {API_ERROR_PERCENT} % of its requests with a status of 500 or above.",
    )


def _of_checks(of: Selector) -> Iterator[Alert]:
    yield Alert(
        name="ChecksFail",
        # A check that fails sometimes is called again; one that always fails leaves tasks waiting.
        expr=f"sum(increase({of(metrics.QUEUE_CHECKS_FAILED)}[5m])) > 0",
        seconds=300,
        severity="warning",
        summary="the recovery check fails, so recovery.check.onFailure decides about tasks with expired leases.",
    )
    yield Alert(
        name="AwaitsVerdict",
        # A working check decides in the time of one call; one that always answers `wait` never decides.
        expr=f"sum({of(metrics.EXPIRED_LEASES)}) > 0",
        seconds=1800,
        severity="warning",
        summary="tasks with expired leases have waited for a verdict of the recovery check for half an hour.",
    )


def _of_scanners(of: Selector, shards: int) -> Iterator[Alert]:
    led, shard_map = of(metrics.SHARD_LEADER), of(metrics.SHARD_MAP_SHARDS)
    yield Alert(
        name="Leaderless",
        # Leadership runs out within seconds; a rollout of all scanners takes less than a minute. While their number
        # changes, the largest exported number counts.
        expr=f"(sum(max by (shard) ({led})) or vector(0)) < (max({shard_map}) or vector({shards}))",
        seconds=60,
        severity="critical",
        summary="no scanner leads some shard: tasks start late by up to maxBlockMilliseconds.",
    )
    down = f"max by (shard) ({of(metrics.SHARD_DOWN)})"
    yield Alert(
        name="ShardsNotServed",
        # If only one scanner cannot reach a server, another scanner leads the server's shards.
        expr=f"count({down} unless on (shard) (max by (shard) ({led}) == 1)) > 0",
        seconds=60,
        severity="critical",
        summary="Redis does not serve {{ $value }} of its shards: their tasks do not start.",
    )
    target, previous = (f'max({shard_map[:-1]},version="{which}"}})' for which in ("target", "previous"))
    still = f"(sum(changes({of(metrics.RESHARDING_CHECKED_TASKS)}[15m])) or vector(0)) == 0"
    yield Alert(
        name="ReshardingStalled",
        expr=f"{target} != {shards} or ({previous} != {target} and {still})",
        seconds=900,
        severity="warning",
        summary=f"resharding makes no progress: spec.shards is {shards}.",
    )

"""The operator's own metrics. The only module that imports prometheus_client."""

from __future__ import annotations

from collections import Counter as Counts
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterable

RECONCILES: Final = Counter(
    "delayq_operator_reconciles",
    "Reconciliations, by result: done, waiting, invalid, unavailable, refused, error, bug.",
    ["result"],
)
RECONCILE_SECONDS: Final = Histogram(
    "delayq_operator_reconcile_seconds",
    "Time a reconciliation took.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
QUEUE_DEPTH: Final = Gauge("delayq_operator_workqueue_depth", "DelayQueues that wait to be reconciled.")
LIST_AGE: Final = Gauge("delayq_operator_list_age_seconds", "Time since all kinds were last listed.")
WATCH_ANSWER_AGE: Final = Gauge(
    "delayq_operator_watch_answer_age_seconds",
    "Time since the API server last answered a watch. Each watch starts anew every 300 s.",
)
API_WRITES: Final = Counter(
    "delayq_operator_api_writes",
    "Writes accepted by the API server, by verb and resource.",
    ["verb", "resource"],
)
SCRAPES: Final = Counter(
    "delayq_operator_scrapes", "Successful scrapes of pods, by component.", ["component"]
)
SCRAPE_ERRORS: Final = Counter(
    "delayq_operator_scrape_errors", "Failed scrapes of pods, by component.", ["component"]
)
DECISION_SECONDS: Final = Histogram(
    "delayq_operator_decision_seconds",
    "Time a scaling decision took.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
LEADER: Final = Gauge("delayq_operator_leader", "1 while this operator is the leader, else 0.")
QUEUES: Final = Gauge("delayq_operator_queues", "DelayQueues, by status of condition Ready.", ["ready"])
WORKER_REPLICAS: Final = Gauge(
    "delayq_operator_worker_replicas",
    "Workers of a DelayQueue: current, desired, and demand (what the work needs, before bounds and behavior).",
    ["namespace", "name", "type"],
)
WORKER_LEAD: Final = Gauge(
    "delayq_operator_worker_lead_seconds",
    "Measured time from the creation of a worker to its first claim, with a margin.",
    ["namespace", "name"],
)
WORKER_HANDLER: Final = Gauge(
    "delayq_operator_worker_handler_seconds",
    "Measured mean run time of the handlers of a DelayQueue.",
    ["namespace", "name"],
)
LOOP_LAG: Final = Gauge("delayq_operator_loop_lag_seconds", "Delay of the last timer of the event loop.")


def exposition() -> tuple[bytes, str]:
    """Everything, in Prometheus' text format, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


def count_ready(statuses: Iterable[str]) -> None:
    counts = Counts(statuses)
    for status in ("True", "False", "Unknown"):
        QUEUES.labels(status).set(counts[status])


def forget_workers(namespace: str, name: str) -> None:
    """Stop exporting the workers of a DelayQueue that is gone."""
    for which in ("current", "desired", "demand"):
        with suppress(KeyError):
            WORKER_REPLICAS.remove(namespace, name, which)
    for gauge in (WORKER_LEAD, WORKER_HANDLER):
        with suppress(KeyError):
            gauge.remove(namespace, name)

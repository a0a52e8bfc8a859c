"""What the operator tells Prometheus about itself. The only module that imports prometheus_client."""

from __future__ import annotations

from collections import Counter as Counts
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delayq_operator.base.objects import Sample

RECONCILES: Final = Counter(
    "delayq_operator_reconciles",
    "Reconciliations, by how they ended: done, waiting, invalid, unavailable, refused, error, bug.",
    ["result"],
)
RECONCILE_SECONDS: Final = Histogram(
    "delayq_operator_reconcile_seconds",
    "How long a reconciliation took.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
QUEUE_DEPTH: Final = Gauge("delayq_operator_queue_depth", "DelayQueues that wait to be reconciled.")
WATCH_AGE: Final = Gauge(
    "delayq_operator_watch_age_seconds", "Time since a watch last showed a sign of life.", ["resource"]
)
API_WRITES: Final = Counter(
    "delayq_operator_api_writes",
    "Writes that the API server took, by verb and resource.",
    ["verb", "resource"],
)
SCRAPES: Final = Counter(
    "delayq_operator_scrapes", "Readings of pods' metrics that worked, by component.", ["component"]
)
SCRAPE_ERRORS: Final = Counter(
    "delayq_operator_scrape_errors", "Readings of pods' metrics that failed, by component.", ["component"]
)
DECISION_SECONDS: Final = Histogram(
    "delayq_operator_decision_seconds",
    "How long a decision on the number of workers took.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
LEADER: Final = Gauge("delayq_operator_leader", "1 while this operator leads, else 0.")
QUEUES: Final = Gauge("delayq_operator_queues", "DelayQueues, by condition Ready.", ["ready"])
WORKER_REPLICAS: Final = Gauge(
    "delayq_operator_worker_replicas",
    "Workers of a DelayQueue: actual, desired, and wanted by the work before bounds and behavior.",
    ["namespace", "name", "which"],
)
WORKER_LEAD: Final = Gauge(
    "delayq_operator_worker_lead_seconds",
    "From creating a single worker of a DelayQueue to its first claim, as learnt, with a margin.",
    ["namespace", "name"],
)
WORKER_HANDLER: Final = Gauge(
    "delayq_operator_worker_handler_seconds",
    "Mean time of a handler of a DelayQueue, as it was learnt.",
    ["namespace", "name"],
)
LOOP_LAG: Final = Gauge("delayq_operator_loop_lag_seconds", "How late the event loop last ran a timer.")


def exposition() -> tuple[bytes, str]:
    """Everything, in Prometheus' text format, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


def samples(text: str) -> Iterator[Sample]:
    """Read another process' exposition; ValueError when it is none."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def count_ready(statuses: Iterable[str]) -> None:
    """Set how many DelayQueues are ready, not ready, unknown."""
    counts = Counts(statuses)
    for status in ("True", "False", "Unknown"):
        QUEUES.labels(status).set(counts[status])


def forget_workers(namespace: str, name: str) -> None:
    """Stop exporting the workers of a DelayQueue that is gone."""
    for which in ("actual", "desired", "wanted"):
        with suppress(KeyError):
            WORKER_REPLICAS.remove(namespace, name, which)
    for gauge in (WORKER_LEAD, WORKER_HANDLER):
        with suppress(KeyError):
            gauge.remove(namespace, name)

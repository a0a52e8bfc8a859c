"""What the processes export: from tallies and counts to Prometheus text. Names and help are contract/metrics.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest, metrics_core
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from delayq.contract import metrics as m

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from delayq.contract.metrics import DurabilityRisk, Metric, Outage
    from delayq.protocol.due_histogram import Horizons
    from delayq.protocol.results import Counts
    from delayq.protocol.shard_map import Layout
    from delayq.service.counters import Buckets, ProcessTally, WorkerTally

Family = metrics_core.Metric
Labels = tuple[str, ...]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(families: Callable[[], Iterable[Family]]) -> bytes:
    """Return the exposition of these families and of the process itself (CPU, memory, open files)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families()


def process_families(tally: ProcessTally) -> Iterable[Family]:
    """Return what every process exports."""
    yield _family(m.REDIS_ERRORS, {(tally.queue, tally.process): tally.redis_errors})
    yield _family(m.LOOP_ERRORS, {(tally.queue, loop): count for loop, count in tally.loop_errors.items()})


def eraser_families(tally: ProcessTally, shards: int) -> Iterable[Family]:
    """Return what an eraser exports."""
    yield _family(m.ERASED_SHARDS, {(tally.queue,): shards})
    yield from process_families(tally)


def worker_families(tally: WorkerTally) -> Iterable[Family]:
    """Return what a worker exports."""
    queue = tally.queue
    plain = {
        m.WORKER_SLOTS: tally.slots,
        m.WORKER_BUSY_SLOTS: tally.busy,
        m.WORKER_CLAIMED: tally.claimed,
        m.WORKER_EXTENDED: tally.extended,
        m.WORKER_LEASES_LOST: tally.leases_lost,
        m.WORKER_HANDLER_TIMEOUTS: tally.handler_timeouts,
    }
    for metric, value in plain.items():
        yield _family(metric, {(queue,): value})
    first: dict[Labels, float] = {} if tally.first_claim is None else {(queue,): tally.first_claim}
    yield _family(m.WORKER_FIRST_CLAIM, first)
    yield _family(m.WORKER_SETTLED, {(queue, outcome): tally.settled[outcome] for outcome in m.OUTCOMES})
    yield _family(m.WORKER_GUARD_UP, {} if tally.guard_up is None else {(queue,): tally.guard_up})
    ends = () if tally.guard_up is None else m.GUARD_OUTCOMES
    yield _family(m.WORKER_GUARDED, {(queue, outcome): tally.guarded[outcome] for outcome in ends})
    yield _histogram(m.WORKER_DUE_TO_CLAIMED, queue, tally.due_to_claimed)
    yield _histogram(m.WORKER_CLAIMED_TO_STARTED, queue, tally.claimed_to_started)
    yield _histogram(m.WORKER_HANDLER, queue, tally.handler)
    yield from process_families(tally)


def queue_families(
    queue: str, led: Mapping[int, bool], counts: Mapping[int, Counts], horizons: Horizons
) -> Iterable[Family]:
    """Return what a scanner exports: whether it leads each shard, and of those it leads, the counts."""
    yield _family(m.SHARD_LED, {(queue, str(shard)): leads for shard, leads in led.items()})
    by_state: dict[Labels, float] = {
        (queue, str(shard), state): getattr(each, state)
        for shard, each in counts.items()
        for state in m.STATES
    }
    yield _family(m.TASKS, by_state)
    yield _per_shard(m.TASK_BYTES, queue, {shard: each.bytes for shard, each in counts.items()})
    yield _per_shard(m.LAPSED_TASKS, queue, {shard: each.lapsed for shard, each in counts.items()})
    yield _per_shard(m.OVERDUE_TASKS, queue, {shard: each.overdue for shard, each in counts.items()})
    lateness = {shard: each.oldest_overdue_ms / 1000 for shard, each in counts.items()}
    yield _per_shard(m.OLDEST_OVERDUE_SECONDS, queue, lateness)
    yield _per_shard(m.NEXT_DUE_SECONDS, queue, {shard: _next_due(each) for shard, each in counts.items()})
    within: dict[Labels, float] = {
        (queue, str(shard), label): tasks
        for shard, each in counts.items()
        for label, tasks in horizons.samples(each.due_within)
    }
    yield _family(m.DUE_WITHIN_TASKS, within)
    for metric in m.QUEUE_COUNTERS:
        verb = metric.name.removeprefix("delayq_queue_").removesuffix("_total")
        yield _per_shard(metric, queue, {shard: each.stats.get(verb, 0) for shard, each in counts.items()})


def shard_families(
    queue: str,
    layout: Layout,
    down: Mapping[int, tuple[Outage, str]],
    progress: Mapping[int, Sequence[int]] | None = None,
) -> Iterable[Family]:
    """Return what a scanner exports of the shards themselves.

    How many there are; which of them Redis does not serve us with, why, and whose server it is; of those that we lead,
    tasks to look at, looked at, moved, and those that stay until they have run, while tasks move.
    """
    yield _family(m.LAYOUT_EPOCH, {(queue,): layout.epoch})
    shards = {"now": layout.shards, "was": layout.was, "target": layout.target}
    yield _family(m.LAYOUT_SHARDS, {(queue, which): shards[which] for which in m.LAYOUTS})
    yield _family(m.SHARD_DOWN, {(queue, str(shard), *why): 1 for shard, why in down.items()})
    for at, metric in enumerate(m.RESHARD):
        yield _per_shard(metric, queue, {shard: each[at] for shard, each in (progress or {}).items()})


def backend_families(
    queue: str,
    risks: Collection[DurabilityRisk] | None,
    outage: Outage = "other",
    *,
    replicas: int | None = None,
    clock_offset_seconds: float | None = None,
) -> Iterable[Family]:
    """Return what a scanner exports of its Redis: whether it serves, what it may lose then, and if not, why not."""
    yield _family(m.REDIS_UP, {(queue,): risks is not None})
    down = m.OUTAGES if risks is None else ()
    yield _family(m.REDIS_DOWN, {(queue, cause): cause == outage for cause in down})
    told = () if risks is None else m.DURABILITY_RISKS
    yield _family(m.DURABILITY_RISK, {(queue, risk): risk in (risks or ()) for risk in told})
    yield _known(m.REDIS_REPLICAS, queue, replicas)
    yield _known(m.REDIS_CLOCK_OFFSET_SECONDS, queue, clock_offset_seconds)


def _known(metric: Metric, queue: str, value: float | None) -> Family:
    """Return a gauge that has a value only where somebody knows it."""
    return _family(metric, {} if value is None else {(queue,): value})


def _next_due(counts: Counts) -> float:
    return float("nan") if counts.next_due_ms is None else (counts.next_due_ms - counts.now_ms) / 1000


def _per_shard(metric: Metric, queue: str, values: Mapping[int, float]) -> Family:
    return _family(metric, {(queue, str(shard)): value for shard, value in values.items()})


def _family(metric: Metric, values: Mapping[Labels, float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, queue: str, buckets: Buckets) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    seen, cumulative = 0, []
    for bound, count in zip((*buckets.bounds, float("inf")), buckets.counts, strict=True):
        seen += count
        cumulative.append(("+Inf" if bound == float("inf") else str(bound), seen))
    family.add_metric((queue,), cumulative, sum_value=buckets.total)
    return family

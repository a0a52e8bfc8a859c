"""What the processes export: from counters to families of samples. Names and help are contract/metrics.py."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from delayq.contract import metrics as m
from delayq.protocol.results import combined
from delayq.service.exposition import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from delayq.contract.files import Reference
    from delayq.contract.metrics import DurabilityRisk, Metric
    from delayq.errors import Outage
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.protocol.results import Counts, ParkedKind
    from delayq.protocol.shard_map import ShardMap
    from delayq.service.counters import Buckets, ProcessCounters, WorkerCounters

Labels = tuple[str, ...]


def process_families(counters: ProcessCounters) -> Iterable[Family]:
    """Return the metrics of every process."""
    yield _family(m.REDIS_ERRORS, {(counters.queue, counters.process): counters.redis_errors})
    yield _family(
        m.LOOP_ERRORS, {(counters.queue, loop): count for loop, count in counters.loop_errors.items()}
    )
    yield missing_references({counters.queue: counters.lacks()})


def missing_references(by_queue: Mapping[str, Iterable[Reference]]) -> Family:
    """Return the keys that a process waits for, by queue."""
    return _family(
        m.MISSING_REFERENCES,
        {(queue, *each): 1 for queue, found in by_queue.items() for each in islice(found, m.MOST_MISSING)},
    )


def eraser_families(
    counters: ProcessCounters, shards: int, outage: Outage | None, others: Collection[str] = ()
) -> Iterable[Family]:
    """Return the metrics of an eraser. `outage`: why Redis does not serve it; None if it does, or if unknown.

    `others` are UIDs of DelayQueues that keep it from erasing.
    """
    yield _family(m.ERASED_SHARDS, {(counters.queue,): shards})
    yield _down(counters.queue, outage)
    yield conflicts(counters.queue, others)
    yield from process_families(counters)


def api_families(counters: ProcessCounters, requests: Mapping[tuple[str, int], int]) -> Iterable[Family]:
    """Return the metrics of the HTTP API; `requests` is by operation and status."""
    counted: dict[Labels, float] = {
        (counters.queue, name, str(status)): count for (name, status), count in requests.items()
    }
    yield _family(m.API_REQUESTS, counted)
    yield from process_families(counters)


def worker_families(counters: WorkerCounters) -> Iterable[Family]:
    """Return the metrics of a worker."""
    queue = counters.queue
    plain = {
        m.WORKER_SLOTS: counters.slots,
        m.WORKER_BUSY_SLOTS: counters.busy,
        m.WORKER_UNUSABLE_SLOTS: counters.unusable,
        m.WORKER_CLAIMED: counters.claimed,
        m.WORKER_EXTENDED: counters.extended,
        m.WORKER_LEASES_LOST: counters.leases_lost,
        m.WORKER_HANDLER_TIMEOUTS: counters.handler_timeouts,
        m.WORKER_LOOP_BLOCKED: counters.recently_blocked_seconds,
    }
    for metric, value in plain.items():
        yield _family(metric, {(queue,): value})
    first: dict[Labels, float] = {} if counters.first_claim is None else {(queue,): counters.first_claim}
    yield _family(m.WORKER_FIRST_CLAIM, first)
    yield _family(m.WORKER_SETTLED, {(queue, outcome): counters.settled[outcome] for outcome in m.OUTCOMES})
    kinds = {(queue, kind): each for kind, each in counters.kinds.items()}
    yield _family(
        m.WORKER_KIND_SETTLED,
        {
            (*labels, outcome): count
            for labels, each in kinds.items()
            for outcome, count in each.settled.items()
            if outcome in m.OUTCOMES
        },
    )
    yield _family(m.WORKER_KIND_RUNS, {labels: each.runs for labels, each in kinds.items()})
    yield _family(m.WORKER_KIND_HANDLER_SECONDS, {labels: each.seconds for labels, each in kinds.items()})
    yield _family(m.WORKER_GUARD_UP, {} if counters.guard_up is None else {(queue,): counters.guard_up})
    ends = () if counters.guard_up is None else m.GUARD_OUTCOMES
    yield _family(m.WORKER_GUARD_RUNS, {(queue, outcome): counters.guarded[outcome] for outcome in ends})
    yield _histogram(m.WORKER_DUE_TO_CLAIMED, queue, counters.due_to_claimed)
    yield _histogram(m.WORKER_CLAIMED_TO_STARTED, queue, counters.claimed_to_started)
    yield _histogram(m.WORKER_HANDLER, queue, counters.handler)
    yield from process_families(counters)


def queue_families(
    queue: str,
    led: Mapping[int, bool],
    counts: Mapping[int, Counts],
    horizons: DueHistogram,
    *,
    parked: Iterable[ParkedKind] = (),
    due_kinds: Mapping[int, Mapping[str, float]] | None = None,
) -> Iterable[Family]:
    """Return a scanner's metrics of the queue: whether it leads each shard, and the counts of those it leads."""
    yield _per_shard(m.SHARD_LEADER, queue, led)
    states = {shard: [(state, getattr(each, state)) for state in m.STATES] for shard, each in counts.items()}
    yield _parted(m.TASKS, queue, states)
    numbers: dict[Metric, Callable[[Counts], float]] = {
        m.TASK_BYTES: lambda each: each.bytes,
        m.EXPIRED_LEASES: lambda each: each.lapsed,
        m.SUSPECT_TASKS: lambda each: each.suspect,
        m.OLDEST_DUE_SECONDS: lambda each: each.late_ms / 1000,
        m.NEXT_DUE_SECONDS: _next_due,
        **{metric: partial(_stat, metric) for metric in m.QUEUE_COUNTERS},
    }
    for metric, number in numbers.items():
        yield _per_shard(metric, queue, {shard: number(each) for shard, each in counts.items()})
    suspended: dict[int, list[tuple[str, float]]] = {
        shard: [("Drain" if each.suspension.drain else "Hold", each.suspension.since_ms / 1000)]
        for shard, each in counts.items()
        if each.suspension is not None and not shard
    }
    yield _parted(m.SUSPENDED, queue, suspended)
    within = {shard: horizons.samples(each.due_within) for shard, each in counts.items()}
    yield _parted(m.DUE_WITHIN_TASKS, queue, within)
    yield _parted(m.DUE_KIND_TASKS, queue, {shard: mix.items() for shard, mix in (due_kinds or {}).items()})
    kinds = {(queue, each.kind, str(each.version)): each for each in combined(parked)[: m.MOST_PARKED]}
    yield _family(m.PARKED_TASKS, {labels: each.tasks for labels, each in kinds.items()})
    yield _family(m.PARKED_OLDEST_DUE, {at: each.oldest_due_ms / 1000 for at, each in kinds.items()})


def shard_families(
    queue: str,
    shard_map: ShardMap,
    down: Mapping[int, tuple[Outage, str]],
    progress: Mapping[int, Sequence[int]] | None = None,
) -> Iterable[Family]:
    """Return a scanner's metrics of the shards.

    The numbers of shards; which shards Redis does not serve, why, and their server; during migration, for each led
    shard, tasks in total, checked, moved, and waiting until they have run.
    """
    yield _family(m.SHARD_MAP_EPOCH, {(queue,): shard_map.epoch})
    shards = {"current": shard_map.shards, "previous": shard_map.was, "target": shard_map.target}
    yield _family(m.SHARD_MAP_SHARDS, {(queue, which): shards[which] for which in m.SHARD_MAP_VERSIONS})
    yield _family(m.SHARD_DOWN, {(queue, str(shard), *why): 1 for shard, why in down.items()})
    for at, metric in enumerate(m.RESHARDING):
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
    yield _down(queue, outage if risks is None else None)
    known = () if risks is None else m.DURABILITY_RISKS
    yield _family(m.DURABILITY_RISK, {(queue, risk): risk in (risks or ()) for risk in known})
    yield _known(m.REDIS_REPLICAS, queue, replicas)
    yield _known(m.REDIS_CLOCK_OFFSET_SECONDS, queue, clock_offset_seconds)


def conflicts(queue: str, uids: Collection[str]) -> Family:
    """Return the other DelayQueues whose scanners serve the queue."""
    return _family(m.CONFLICTING_DELAYQUEUES, {(queue, uid): 1 for uid in sorted(uids)[: m.MOST_CONFLICTS]})


def _down(queue: str, outage: Outage | None) -> Family:
    """Return the cause of an outage; no value without one."""
    causes = () if outage is None else m.OUTAGES
    return _family(m.REDIS_DOWN, {(queue, cause): cause == outage for cause in causes})


def _known(metric: Metric, queue: str, value: float | None) -> Family:
    """Return a gauge that has a value only if it is known."""
    return _family(metric, {} if value is None else {(queue,): value})


def _next_due(counts: Counts) -> float:
    return float("nan") if counts.next_due_ms is None else (counts.next_due_ms - counts.now_ms) / 1000


def _stat(metric: Metric, counts: Counts) -> float:
    return counts.stats.get(metric.stat, 0)


def _parted(metric: Metric, queue: str, values: Mapping[int, Iterable[tuple[str, float]]]) -> Family:
    """Return a gauge of each shard by one more label."""
    labelled: dict[Labels, float] = {
        (queue, str(shard), label): value for shard, found in values.items() for label, value in found
    }
    return _family(metric, labelled)


def _per_shard(metric: Metric, queue: str, values: Mapping[int, float]) -> Family:
    return _family(metric, {(queue, str(shard)): value for shard, value in values.items()})


def _family(metric: Metric, values: Mapping[Labels, float]) -> Family:
    samples = [
        Sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
        for labels, value in values.items()
    ]
    return Family(metric.name, metric.help, metric.kind, samples)


def _histogram(metric: Metric, queue: str, buckets: Buckets) -> Family:
    labels, seen, samples = {"queue": queue}, 0, []
    for bound, count in zip((*buckets.bounds, float("inf")), buckets.counts, strict=True):
        seen += count
        le = "+Inf" if bound == float("inf") else str(bound)
        samples.append(Sample(f"{metric.name}_bucket", {"le": le, **labels}, seen))
    sums = Sample(f"{metric.name}_count", labels, seen), Sample(f"{metric.name}_sum", labels, buckets.total)
    return Family(metric.name, metric.help, metric.kind, [*samples, *sums])

"""Every metric delayq exports, as data: code, dashboards, alerts and the operator agree through this table.

Not here: anything that counts (delayq/service/counters.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from delayq.errors import Outage

MetricKind = Literal["counter", "gauge", "histogram"]
DurabilityRisk = Literal[
    "append_only_off",
    "append_only_failing",
    "saves_failing",
    "evicts",
    "fsync_off",
    "fsync_unconfirmed",
    "replicas_missing",
    "fsync_paused",
    "rewrite_failing",
    "fsync_unknown",
    "unknown",
]

LATENESS_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""Half a millisecond to an hour; finest around 1.5 and 5 ms, where an idle queue promises p50 and p99."""

HANDLER_BUCKETS: Final = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0),
)
"""A millisecond to an hour; handlers differ more than lateness does."""

SHARD_MAP_VERSIONS: Final = ("current", "previous", "target")
"""Values of the label `version`."""

STATES: Final = ("scheduled", "due", "in_flight", "retrying", "parked", "dead")
"""Values of the label `state`."""

OUTCOMES: Final = ("acked", "retried", "buried", "released", "parked", "cancelled", "lease_lost")
"""Values of the label `outcome`."""

MOST_KINDS: Final = 64
"""Values of the label `kind` of one worker; a handler with more kinds has all of them."""
OTHER_KINDS: Final = "other"
"""All further kinds together."""

KINDS_SAMPLED: Final = 64
"""Tasks of a shard that a scanner looks at for their kinds, if a scrape asks for them."""

MOST_PARKED: Final = 16
"""Kinds and versions of parked tasks that one scanner exports."""

GuardOutcome = Literal["finished", "duplicate", "busy", "lost", "unavailable", "abandoned"]
GUARD_OUTCOMES: Final[tuple[GuardOutcome, ...]] = get_args(GuardOutcome)
"""Values of the label `outcome` of runs under a guard: the handler returned; the task had taken effect before; another
run has the guard's lock; that lock was lost; the guard's store is unavailable; the handler raised."""

DURABILITY_RISKS: Final[tuple[DurabilityRisk, ...]] = get_args(DurabilityRisk)
"""Values of the label `risk`, the gravest first: no append-only file; it cannot be written; snapshots fail, where they
are all there is or Redis takes no writes without them; tasks or locks may be evicted; the file is never forced to the
disk; the disk, or the replicas that are there, cannot confirm what spec.durability wants confirmed; the file
is not forced to the disk while it is rewritten; it cannot be rewritten and grows; how often it is forced to the
disk is not known, for CONFIG GET is refused; nothing is known, for INFO is refused."""


MOST_HORIZONS: Final = 128
"""Horizons that one scrape may ask a scanner for, as `/metrics?horizon=10&horizon=2.5`."""

LONGEST_HORIZON_SECONDS: Final = 366 * 86_400
"""The longest of them: a year."""


def horizon_label(seconds: float) -> str:
    """Return a horizon as the label `horizon_seconds` has it."""
    return f"{seconds:g}"


OUTAGES: Final[tuple[Outage, ...]] = get_args(Outage)
"""Values of the label `cause`, in this order: no way to Redis, up to `tls`; delayq may not use it, up to `max_clients`;
it answers that it will not serve, up to `no_replicas`; no server is a master of some shards; slots are on their way to
another node; unknown. docs/reference/redis-errors.md says what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric: name, help text and labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()
    stat: str = ""
    """Field of the hash of counters in Redis; of counters that are kept there."""


def _gauge(name: str, about: str, *labels: str) -> Metric:
    return Metric(name=f"delayq_{name}", kind="gauge", help=about, labels=("queue", *labels))


def _counter(name: str, about: str, *labels: str, stat: str = "") -> Metric:
    return Metric(
        name=f"delayq_{name}_total", kind="counter", help=about, labels=("queue", *labels), stat=stat
    )


def _seconds(name: str, about: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(
        name=f"delayq_worker_{name}_seconds", kind="histogram", help=about, labels=("queue",), buckets=buckets
    )


def _queue_counter(stat: str, about: str, name: str = "") -> Metric:
    about = f"{about}, by all processes, since the queue was created."
    return _counter(f"queue_{name or stat}", about, "shard", stat=stat)


TASKS: Final = _gauge(
    "tasks",
    "Tasks by state: scheduled, due (not claimed yet), in_flight, retrying, parked (no worker has the kind), dead.",
    "shard",
    "state",
)
TASK_BYTES: Final = _gauge(
    "task_bytes",
    "Bytes of task ids and envelopes, dead letters included; spec.limits.maxBytes limits them.",
    "shard",
)
EXPIRED_LEASES: Final = _gauge(
    "expired_leases",
    "Expired leases that wait for a verdict of the check, or for the next recovery.",
    "shard",
)
SUSPECT_TASKS: Final = _gauge(
    "suspect_tasks", "Of the due tasks, those whose lease expired and that run apart.", "shard"
)
OLDEST_DUE_SECONDS: Final = _gauge(
    "oldest_due_seconds", "Time since the due time of the oldest due task; 0 when no task is due.", "shard"
)
NEXT_DUE_SECONDS: Final = _gauge(
    "next_due_seconds", "Time until the next task is due; NaN when no task is scheduled.", "shard"
)
DUE_WITHIN_TASKS: Final = _gauge(
    "due_within_tasks",
    "Scheduled tasks that fall due within the horizon, with occurrences that are stored later; without due tasks.",
    "shard",
    "horizon_seconds",
)
DUE_KIND_TASKS: Final = _gauge(
    "due_kind_tasks",
    "Estimate of tasks that are due or fall due in the autoscaler's window, by kind, from a sample of 64.",
    "shard",
    "kind",
)
PARKED_TASKS: Final = _gauge(
    "parked_tasks",
    "Parked tasks by kind and version, of the shards that this scanner leads; at most 16 kinds and versions.",
    "kind",
    "version",
)
PARKED_OLDEST_DUE: Final = _gauge(
    "parked_oldest_due_timestamp_seconds",
    "Due time of the oldest parked task, Unix seconds by Redis' clock, by kind and version.",
    "kind",
    "version",
)
SUSPENDED: Final = _gauge(
    "suspended_timestamp_seconds",
    "When `delayq suspend` stopped the tasks, Unix seconds, with its policy (Hold or Drain). Absent otherwise.",
    "shard",
    "policy",
)
SHARD_LEADER: Final = _gauge("shard_leader", "1 if this scanner is the leader of the shard, else 0.", "shard")
SHARD_DOWN: Final = _gauge(
    "shard_down",
    "1 for each shard that this scanner cannot reach in Redis, by cause and server; no value for the others.",
    "shard",
    "cause",
    "server",
)
SHARD_MAP_EPOCH: Final = _gauge("shard_map_epoch", "Version number of the shard map that this scanner uses.")
SHARD_MAP_SHARDS: Final = _gauge(
    "shard_map_shards",
    "Shards in the shard map: current (tasks are stored here), previous (tasks may still be here), target (requested).",
    "version",
)
RESHARDING_TASKS: Final = _gauge(
    "resharding_tasks",
    "Tasks to check during resharding; no value while no resharding is in progress.",
    "shard",
)
RESHARDING_CHECKED_TASKS: Final = _gauge(
    "resharding_checked_tasks",
    "Tasks checked during resharding; no value while no resharding is in progress.",
    "shard",
)
RESHARDING_MIGRATED_TASKS: Final = _gauge(
    "resharding_migrated_tasks",
    "Tasks migrated to another shard during resharding; no value while no resharding is in progress.",
    "shard",
)
RESHARDING_WAITING_TASKS: Final = _gauge(
    "resharding_waiting_tasks",
    "Tasks that run on their previous shard (due soon, in flight or locked); no value without resharding.",
    "shard",
)
RESHARDING: Final = (
    RESHARDING_TASKS,
    RESHARDING_CHECKED_TASKS,
    RESHARDING_MIGRATED_TASKS,
    RESHARDING_WAITING_TASKS,
)
"""How far a shard is, as the scanner that leads it tells, in the order in which it tells."""
MOST_CONFLICTS: Final = 8
"""Most other DelayQueues that a scanner reports."""
CONFLICTING_DELAYQUEUES: Final = _gauge(
    "conflicting_delayqueues",
    "1 for each other DelayQueue whose scanners served this queue within 30 seconds, at most 8.",
    "uid",
)
REDIS_UP: Final = _gauge("redis_up", "1 while this scanner reaches Redis, else 0.")
REDIS_DOWN: Final = _gauge(
    "redis_down",
    "1 for the cause of a Redis outage, else 0; no value while this scanner, or `delayq erase`, reaches Redis.",
    "cause",
)
DURABILITY_RISK: Final = _gauge(
    "durability_risk",
    "1 if Redis may lose accepted tasks for this reason, else 0; no value while Redis is down.",
    "risk",
)
REDIS_REPLICAS: Final = _gauge(
    "redis_replicas", "Redis replicas in sync; no value while Redis is down or hides them."
)
REDIS_CLOCK_OFFSET_SECONDS: Final = _gauge(
    "redis_clock_offset_seconds",
    "Redis clock minus this scanner's clock, to half a round trip; no value while Redis is down.",
)

QUEUE_COUNTERS: Final = tuple(
    _queue_counter(*each)
    for each in (
        ("scheduled", "Tasks scheduled"),
        ("claimed", "Tasks claimed"),
        ("acked", "Tasks completed by a handler"),
        ("retried", "Failed attempts scheduled for a retry"),
        ("buried", "Tasks buried as dead letters"),
        ("expired", "Tasks that missed their deadline"),
        ("missed", "Occurrences of schedules that did not start in time", "occurrences_missed"),
        (
            "skipped",
            "Occurrences of schedules that did not start because another one ran",
            "occurrences_skipped",
        ),
        ("dropped", "Tasks that missed their deadline and were deleted, as spec.delivery.onExpired asks"),
        ("released", "Tasks released without charging an attempt"),
        ("parked", "Tasks parked, because a worker did not know their kind or version"),
        ("unparked", "Parked tasks returned to the queue by a worker of their kind"),
        ("reclaimed", "Expired leases reclaimed"),
        ("completed", "Expired leases whose task the check reported as done", "check_completed"),
        ("waited", "Expired leases whose recovery the check deferred", "recovery_deferred"),
        ("checks_failed", "Checks of expired leases that returned no verdict"),
        ("cancelled", "Tasks cancelled"),
        ("rescheduled", "Tasks rescheduled"),
        ("redriven", "Dead letters scheduled again"),
        ("purged", "Dead letters deleted"),
        ("clamped", "Due times in the past, set to the current time"),
        ("adopted", "Orphaned tasks restored to an index", "restored"),
        ("deduplicated", "Tasks found in two indexes and removed from one"),
        ("moved", "Tasks migrated to another shard", "migrated"),
        ("pruned", "Index entries without a task, removed by the reaper"),
        ("orphans", "Index entries without a task, removed by a claim or a reclaim"),
    )
)
"""Counters kept in Redis and read by the scanner that leads the shard."""

WORKER_SLOTS: Final = _gauge("worker_slots", "Tasks that this worker can run at a time.")
WORKER_BUSY_SLOTS: Final = _gauge("worker_busy_slots", "Tasks that this worker runs now.")
WORKER_UNUSABLE_SLOTS: Final = _gauge(
    "worker_unusable_slots",
    "Slots that this worker does not use, because it lacks threads, processes, descriptors or memory.",
)
WORKER_FIRST_CLAIM: Final = _gauge(
    "worker_first_claim_timestamp_seconds",
    "Unix time of the first answered claim of this worker; no value before.",
)
WORKER_CLAIMED: Final = _counter("worker_claimed", "Tasks claimed by this worker.")
WORKER_SETTLED: Final = _counter("worker_settled", "Tasks settled by this worker, by outcome.", "outcome")
WORKER_EXTENDED: Final = _counter("worker_extended", "Leases extended by this worker.")
WORKER_LEASES_LOST: Final = _counter("worker_leases_lost", "Leases that expired while the handler still ran.")
WORKER_HANDLER_TIMEOUTS: Final = _counter("worker_handler_timeouts", "Handlers cancelled at their timeout.")
BLOCKED_FOR_SECONDS: Final = 300
"""For how long a worker exports that its event loop was blocked: a scrape must not miss it."""
WORKER_LOOP_BLOCKED: Final = _gauge(
    "worker_event_loop_blocked_seconds",
    "How long a coroutine blocked the event loop of this worker the last time, until five minutes afterwards; else 0.",
)
WORKER_KIND_SETTLED: Final = _counter(
    "worker_kind_settled",
    "Tasks settled by this worker, by kind and outcome; tasks without a kind are not counted.",
    "kind",
    "outcome",
)
WORKER_KIND_RUNS: Final = _counter("worker_kind_runs", "Runs of handlers by the kind of their task.", "kind")
WORKER_KIND_HANDLER_SECONDS: Final = _counter(
    "worker_kind_handler_seconds", "Run time of handlers by the kind of their task.", "kind"
)
WORKER_GUARD_UP: Final = _gauge(
    "worker_guard_up", "1 while this worker can use the guard, else 0; no value without a guard."
)
WORKER_GUARD_RUNS: Final = _counter(
    "worker_guard_runs", "Handler runs under the guard, by outcome; no value without a guard.", "outcome"
)
WORKER_DUE_TO_CLAIMED: Final = _seconds(
    "due_to_claimed", "Time from due to claimed, of tasks that start.", LATENESS_BUCKETS
)
WORKER_CLAIMED_TO_STARTED: Final = _seconds(
    "claimed_to_started", "Time from claimed to the start of the handler.", LATENESS_BUCKETS
)
WORKER_HANDLER: Final = _seconds("handler", "Run time of handlers.", HANDLER_BUCKETS)

ERASED_SHARDS: Final = _gauge("erased_shards", "Shards emptied by `delayq erase`.")

API_REQUESTS: Final = _counter(
    "api_requests",
    "Requests that this process of the HTTP API answered, by operation (`none`: no such path) and status.",
    "operation",
    "status",
)
REDIS_ERRORS: Final = _counter("redis_errors", "Failed calls to Redis.", "process")
LOOP_ERRORS: Final = _counter("loop_errors", "Failed steps of a loop; the loop retries them.", "loop")
MOST_MISSING: Final = 16
"""Most missing references that a process reports."""
MISSING_REFERENCES: Final = _gauge(
    "missing_references",
    "1 for each key of a Secret or ConfigMap that this process waits for, at most 16.",
    "kind",
    "name",
    "key",
)

METRICS: Final = tuple(
    metric
    for each in vars().values()
    for metric in (each if each is QUEUE_COUNTERS else (each,))
    if isinstance(metric, Metric)
)
"""All of them, in the order of this file, which is that of the documentation."""

_BY_STAT: Final = {each.stat: each for each in QUEUE_COUNTERS}
QUEUE_CLAIMED: Final = _BY_STAT["claimed"]
QUEUE_BURIED: Final = _BY_STAT["buried"]
QUEUE_RELEASED: Final = _BY_STAT["released"]
QUEUE_RECLAIMED: Final = _BY_STAT["reclaimed"]
QUEUE_CHECKS_FAILED: Final = _BY_STAT["checks_failed"]

"""Every metric delayq exports, as data: code, dashboards, alerts and the operator agree through this table.

Not here: anything that counts (delayq/metrics.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

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
Outage = Literal[
    "refused",
    "timeout",
    "dns",
    "tls",
    "auth",
    "denied",
    "loading",
    "read_only",
    "cannot_persist",
    "no_replicas",
    "no_master",
    "cluster_down",
    "migrating",
    "other",
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

LAYOUTS: Final = ("now", "was", "target")
"""Values of the label `layout`."""

STATES: Final = ("delayed", "retry", "suspect", "processing", "dlq")
"""Values of the label `state`."""

OUTCOMES: Final = ("acked", "retried", "buried", "released", "lease_lost")
"""Values of the label `outcome`."""

GuardOutcome = Literal["finished", "seen", "busy", "lost", "unavailable", "abandoned"]
GUARD_OUTCOMES: Final[tuple[GuardOutcome, ...]] = get_args(GuardOutcome)
"""Values of the label `outcome` of runs under a guard: the handler returned; the task had taken effect before; somebody
else holds it; the hold was lost; the guard's store is away; the handler raised."""

DURABILITY_RISKS: Final[tuple[DurabilityRisk, ...]] = get_args(DurabilityRisk)
"""Values of the label `risk`, the gravest first: no append-only file; it cannot be written; snapshots fail, where they
are all there is or Redis takes no writes without them; tasks or locks may be evicted; the file is never forced to the
disk; the disk, or the replicas that are there, cannot confirm what spec.delivery.acknowledge wants confirmed; the file
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
"""Values of the label `cause`: no way to Redis, in six ways, the last two of them a user's password and rights; or it
answers that it will not serve; or nobody knows a master, of all or of some slots; or slots are on their way to another
node; or nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: what it is called, what it counts, and by what it is told apart."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


def _gauge(name: str, about: str, *labels: str) -> Metric:
    return Metric(name=f"delayq_{name}", kind="gauge", help=about, labels=labels)


def _counter(name: str, about: str, *labels: str) -> Metric:
    return Metric(name=f"delayq_{name}_total", kind="counter", help=about, labels=labels)


def _seconds(name: str, about: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(
        name=f"delayq_worker_{name}_seconds", kind="histogram", help=about, labels=("queue",), buckets=buckets
    )


def _queue_counter(verb: str, about: str) -> Metric:
    return _counter(
        f"queue_{verb}", f"{about}, by all processes together, since the queue began.", "queue", "shard"
    )


_SHARD: Final = ("queue", "shard")

TASKS: Final = _gauge("tasks", "Tasks by state.", "queue", "shard", "state")
TASK_BYTES: Final = _gauge(
    "task_bytes",
    "What ids and envelopes weigh, dead letters included: spec.limits.maxBytes.",
    "queue",
    "shard",
)
LAPSED_TASKS: Final = _gauge(
    "lapsed_tasks",
    "Of those in processing, tasks whose lease ran out and on which nobody has decided yet, as they wait for a check.",
    "queue",
    "shard",
)
OVERDUE_TASKS: Final = _gauge("overdue_tasks", "Tasks that are due and not claimed.", "queue", "shard")
OLDEST_OVERDUE_SECONDS: Final = _gauge(
    "oldest_overdue_seconds", "How long the most overdue task has been due; 0 when none is.", "queue", "shard"
)
NEXT_DUE_SECONDS: Final = _gauge(
    "next_due_seconds", "Time until the next task falls due; NaN when none waits.", "queue", "shard"
)
DUE_WITHIN_TASKS: Final = _gauge(
    "due_within_tasks",
    "Tasks that fall due within the horizon from now; overdue ones are not among them.",
    "queue",
    "shard",
    "horizon_seconds",
)
SHARD_LED: Final = _gauge("shard_led", "1 where this scanner leads the shard, else 0.", "queue", "shard")
SHARD_DOWN: Final = _gauge(
    "shard_down",
    "1 for a shard that Redis does not serve this scanner with, why, and the server; no value for one it serves.",
    "queue",
    "shard",
    "cause",
    "server",
)
LAYOUT_EPOCH: Final = _gauge(
    "layout_epoch",
    "Counts the steps that the number of shards has taken, as far as this scanner knows.",
    "queue",
)
LAYOUT_SHARDS: Final = _gauge(
    "layout_shards",
    "Shards by layout: now (where tasks are stored), was (where they may still be), target (what was asked for).",
    "queue",
    "layout",
)
RESHARD_TASKS: Final = _gauge(
    "reshard_tasks", "Tasks to look at, to move what has another shard now; no value while settled.", *_SHARD
)
RESHARD_CHECKED_TASKS: Final = _gauge(
    "reshard_checked_tasks", "Of these, tasks that were looked at; no value while settled.", *_SHARD
)
RESHARD_MOVED_TASKS: Final = _gauge(
    "reshard_moved_tasks",
    "Of these, tasks that were moved to another shard; no value while settled.",
    *_SHARD,
)
RESHARD_WAITING_TASKS: Final = _gauge(
    "reshard_waiting_tasks",
    "Of these, tasks that stay where they are until they have run: due soon, in flight, or locked; no value while "
    "settled.",
    *_SHARD,
)
RESHARD: Final = (RESHARD_TASKS, RESHARD_CHECKED_TASKS, RESHARD_MOVED_TASKS, RESHARD_WAITING_TASKS)
"""How far a shard is, as the scanner that leads it tells, in the order in which it tells."""
REDIS_UP: Final = _gauge("redis_up", "1 while Redis serves this scanner, else 0.", "queue")
REDIS_DOWN: Final = _gauge(
    "redis_down",
    "1 for the cause why Redis does not serve this scanner, else 0; no value while it serves.",
    "queue",
    "cause",
)
DURABILITY_RISK: Final = _gauge(
    "durability_risk",
    "1 where Redis may lose accepted tasks in this way, else 0; no value while Redis does not serve.",
    "queue",
    "risk",
)
REDIS_REPLICAS: Final = _gauge(
    "redis_replicas", "Replicas of Redis that keep up; no value while Redis does not serve or tell.", "queue"
)
REDIS_CLOCK_OFFSET_SECONDS: Final = _gauge(
    "redis_clock_offset_seconds",
    "Redis' clock minus this scanner's, to half a round trip; no value while Redis does not serve.",
    "queue",
)

QUEUE_SCHEDULED: Final = _queue_counter("scheduled", "Tasks scheduled")
QUEUE_CLAIMED: Final = _queue_counter("claimed", "Tasks claimed")
QUEUE_ACKED: Final = _queue_counter("acked", "Tasks done")
QUEUE_RETRIED: Final = _queue_counter("retried", "Attempts failed and put off")
QUEUE_BURIED: Final = _queue_counter("buried", "Tasks buried as dead letters")
QUEUE_RELEASED: Final = _queue_counter("released", "Tasks handed back without an attempt charged")
QUEUE_RECLAIMED: Final = _queue_counter("reclaimed", "Expired leases reclaimed")
QUEUE_COMPLETED: Final = _queue_counter("completed", "Expired leases whose task a check declared to be done")
QUEUE_WAITED: Final = _queue_counter("waited", "Expired leases left alone for longer by a check")
QUEUE_CHECKS_FAILED: Final = _queue_counter(
    "checks_failed", "Expired leases about which a check gave no verdict"
)
QUEUE_CANCELLED: Final = _queue_counter("cancelled", "Tasks cancelled")
QUEUE_RESCHEDULED: Final = _queue_counter("rescheduled", "Tasks given another due time")
QUEUE_REDRIVEN: Final = _queue_counter("redriven", "Dead letters scheduled again")
QUEUE_PURGED: Final = _queue_counter("purged", "Dead letters deleted")
QUEUE_CLAMPED: Final = _queue_counter("clamped", "Due times in the past moved to now")
QUEUE_ADOPTED: Final = _queue_counter("adopted", "Tasks found in no index and put back into one")
QUEUE_DEDUPLICATED: Final = _queue_counter("deduplicated", "Tasks found in two indexes and taken out of one")
QUEUE_MOVED: Final = _queue_counter("moved", "Tasks moved to another shard")
QUEUE_PRUNED: Final = _queue_counter("pruned", "Index entries without a task, removed by the reaper")
QUEUE_ORPHANS: Final = _queue_counter(
    "orphans", "Index entries without a task, dropped when claimed or reclaimed"
)

QUEUE_COUNTERS: Final = (
    QUEUE_SCHEDULED,
    QUEUE_CLAIMED,
    QUEUE_ACKED,
    QUEUE_RETRIED,
    QUEUE_BURIED,
    QUEUE_RELEASED,
    QUEUE_RECLAIMED,
    QUEUE_COMPLETED,
    QUEUE_WAITED,
    QUEUE_CHECKS_FAILED,
    QUEUE_CANCELLED,
    QUEUE_RESCHEDULED,
    QUEUE_REDRIVEN,
    QUEUE_PURGED,
    QUEUE_CLAMPED,
    QUEUE_ADOPTED,
    QUEUE_DEDUPLICATED,
    QUEUE_MOVED,
    QUEUE_PRUNED,
    QUEUE_ORPHANS,
)
"""Counters kept in Redis and read by the scanner that leads the shard."""

WORKER_SLOTS: Final = _gauge("worker_slots", "Tasks this worker may run at a time.", "queue")
WORKER_BUSY_SLOTS: Final = _gauge("worker_busy_slots", "Tasks this worker is running.", "queue")
WORKER_FIRST_CLAIM: Final = _gauge(
    "worker_first_claim_timestamp_seconds",
    "Unix time at which Redis answered this worker's first claim, with tasks or without; no value before.",
    "queue",
)
WORKER_CLAIMED: Final = _counter("worker_claimed", "Tasks this worker claimed.", "queue")
WORKER_SETTLED: Final = _counter(
    "worker_settled", "Tasks this worker was done with, by outcome.", "queue", "outcome"
)
WORKER_EXTENDED: Final = _counter("worker_extended", "Leases this worker extended.", "queue")
WORKER_LEASES_LOST: Final = _counter(
    "worker_leases_lost", "Leases this worker lost while its handler ran.", "queue"
)
WORKER_HANDLER_TIMEOUTS: Final = _counter(
    "worker_handler_timeouts", "Handlers cancelled because they ran too long.", "queue"
)
WORKER_GUARD_UP: Final = _gauge(
    "worker_guard_up", "1 while the guard can serve this worker, else 0; no value without a guard.", "queue"
)
WORKER_GUARDED: Final = _counter(
    "worker_guarded", "Runs under the guard, by how they ended; no value without one.", "queue", "outcome"
)
WORKER_DUE_TO_CLAIMED: Final = _seconds("due_to_claimed", "From due to claimed.", LATENESS_BUCKETS)
WORKER_CLAIMED_TO_STARTED: Final = _seconds(
    "claimed_to_started", "From claimed to the start of the handler.", LATENESS_BUCKETS
)
WORKER_HANDLER: Final = _seconds("handler", "How long handlers ran.", HANDLER_BUCKETS)

ERASED_SHARDS: Final = _gauge("erased_shards", "Shards that `delayq erase` has emptied.", "queue")

REDIS_ERRORS: Final = _counter("redis_errors", "Calls to Redis that failed.", "queue", "process")
LOOP_ERRORS: Final = _counter(
    "loop_errors", "Steps of a loop that failed and will be tried again.", "queue", "loop"
)

METRICS: Final = (
    TASKS,
    TASK_BYTES,
    LAPSED_TASKS,
    OVERDUE_TASKS,
    OLDEST_OVERDUE_SECONDS,
    NEXT_DUE_SECONDS,
    DUE_WITHIN_TASKS,
    SHARD_LED,
    SHARD_DOWN,
    LAYOUT_EPOCH,
    LAYOUT_SHARDS,
    RESHARD_TASKS,
    RESHARD_CHECKED_TASKS,
    RESHARD_MOVED_TASKS,
    RESHARD_WAITING_TASKS,
    REDIS_UP,
    REDIS_DOWN,
    DURABILITY_RISK,
    REDIS_REPLICAS,
    REDIS_CLOCK_OFFSET_SECONDS,
    *QUEUE_COUNTERS,
    WORKER_SLOTS,
    WORKER_BUSY_SLOTS,
    WORKER_FIRST_CLAIM,
    WORKER_CLAIMED,
    WORKER_SETTLED,
    WORKER_EXTENDED,
    WORKER_LEASES_LOST,
    WORKER_HANDLER_TIMEOUTS,
    WORKER_GUARD_UP,
    WORKER_GUARDED,
    WORKER_DUE_TO_CLAIMED,
    WORKER_CLAIMED_TO_STARTED,
    WORKER_HANDLER,
    ERASED_SHARDS,
    REDIS_ERRORS,
    LOOP_ERRORS,
)
"""All of them."""

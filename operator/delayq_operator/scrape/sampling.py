"""Builds the sample for a decision from the readings of scanners and workers. Pure.

A missing number is not zero: the sample is then partial or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract import metrics as table
from delayq.contract.metrics import horizon_label
from delayq.scaling import Sample
from delayq.scaling.policy import HANDLER_SECONDS

from delayq_operator.scrape.backlog import LONGEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq_operator.scrape.backlog import Reading
    from delayq_operator.scrape.worker_stats import Fleet, WorkerStats


def sample(reading: Reading, asked: Collection[float], stats: WorkerStats, fleet: Fleet) -> Sample | None:
    """Sum up a reading; None if it has no shard, or a shard lacks a number."""
    overdue = reading.values(table.TASKS, state="due")
    in_flight = reading.values(table.TASKS, state="in_flight")
    if not reading.shards or not len(overdue) == len(in_flight) == reading.shards:
        return None
    due = reading.total(table.TASKS, state="due")
    oldest = max(reading.values(table.OLDEST_DUE_SECONDS), default=0.0)
    next_due = min(reading.values(table.NEXT_DUE_SECONDS), default=None)
    # An expired lease that waits for a check needs no worker.
    held = reading.total(table.TASKS, state="in_flight") - reading.total(table.EXPIRED_LEASES)
    return Sample(
        overdue=due,
        overdue_seconds=min(LONGEST_SECONDS, oldest) if due else 0.0,
        in_flight=max(0, held),
        parked=reading.total(table.TASKS, state="parked"),
        due_within=_due_within(reading, asked),
        next_due_seconds=None if next_due is None else min(next_due, LONGEST_SECONDS),
        fallen_due=_fallen_due(reading, due),
        ready=fleet.ready,
        starting=fleet.starting,
        starting_seconds=fleet.starting_seconds,
        handler_seconds=stats.handler.seconds,
        kinds=_kinds(reading, stats),
        quickest_seconds=min(stats.kinds.seconds.values(), default=None),
        lead_seconds=stats.lead.seconds,
        leads=stats.lead.by_starts,
        likely=stats.lead.likely,
        soonest_seconds=stats.lead.soonest_seconds,
        whole=reading.whole,
    )


def _kinds(reading: Reading, stats: WorkerStats) -> tuple[tuple[float, float], ...]:
    """Return share and handler time of the kinds that fall due in the window; those without a mean have that of all."""
    means, least = stats.kinds.seconds, stats.handler.stuck_seconds
    found: dict[float, float] = {}
    for shard in reading.by_shard(table.DUE_KIND_TASKS, "kind") if means else ():
        for kind, tasks in shard.items():
            seconds = means.get(kind, stats.handler.seconds or HANDLER_SECONDS)
            found[max(seconds, least)] = found.get(max(seconds, least), 0.0) + tasks
    total = sum(found.values())
    return tuple((tasks / total, seconds) for seconds, tasks in sorted(found.items()) if total)


def _due_within(reading: Reading, asked: Collection[float]) -> tuple[tuple[float, int], ...]:
    """Sum up shards by requested horizon; a missing horizon has the value of the next smaller one."""
    shards = reading.by_shard(table.DUE_WITHIN_TASKS, "horizon_seconds")
    if not any(shards):
        return ()  # nothing falls due, which is the same on any horizons
    rising = [(horizon, horizon_label(horizon)) for horizon in sorted(asked)]
    totals = dict.fromkeys(asked, 0)
    for shard in shards:
        tasks = 0
        for horizon, label in rising:
            tasks = max(tasks, int(shard.get(label, tasks)))
            totals[horizon] += tasks
    return tuple((horizon, totals[horizon]) for horizon, _ in rising)


def _fallen_due(reading: Reading, overdue: int) -> int | None:
    """Return how many tasks ever fell due, each retry counted; None unless every shard reports it."""
    counters = (table.QUEUE_CLAIMED, table.QUEUE_RELEASED, table.QUEUE_RECLAIMED)
    claimed, released, reclaimed = (reading.values(each) for each in counters)
    if not reading.whole or not len(claimed) == len(released) == len(reclaimed) == reading.shards:
        return None
    return int(sum(claimed) - sum(released) - sum(reclaimed)) + overdue

"""Decides on the number of workers from each reading of a queue, and keeps the memory for the next decision.

A reconciliation (apply.py) writes the number. If another client changes the number or the spec after a decision, the
autoscaler decides again from the same sample.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delayq.scaling import begun, decide
from delayq.scaling.behavior import changed
from delayq.scaling.policy import RESTART_SECONDS

from delayq_operator.base import metrics, names
from delayq_operator.scaling.capacity_forecast import CapacityForecast
from delayq_operator.scaling.scaling import Observed
from delayq_operator.scrape.changes import Reported
from delayq_operator.scrape.sampling import sample

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from delayq.scaling import Decision, Memory, Policy, Sample
    from delayq.scaling.memory import Change

    from delayq_operator.base.names import Key
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scaling.workers import Workers
    from delayq_operator.scrape.backlog import Reading
    from delayq_operator.scrape.worker_stats import Fleet, WorkerStats

log = logging.getLogger(__name__)

STALE_SECONDS: Final = 10.0
"""A decision is valid this long."""


@dataclass(slots=True)
class _Queue:
    """The state of one queue."""

    uid: str
    stats: WorkerStats
    forecast: CapacityForecast
    decision: Decision | None = None
    """The latest, made from the latest sample."""
    changes: tuple[Change, ...] = ()
    """Changes that were written: only these count against the limits of `behavior`."""
    reported: Reported = field(default_factory=Reported)
    woke_at: float = 0.0
    scaled_at: float | None = None
    whole_at: float | None = None
    """Time of the last whole sample; before there was one, time of the first sample."""
    read: bool = False
    """Whether there was a whole sample."""
    refused: int | None = None
    """The number that the API server last refused."""

    def decide(self, seen: Sample | None, policy: Policy, previous: Memory, now: float) -> None:
        started = time.perf_counter()
        self.decision = decide(seen, policy, previous, now)
        self.forecast.update(self.decision.shortfall, now)
        metrics.DECISION_SECONDS.observe(time.perf_counter() - started)

    def excused(self, seen: Sample | None, now: float) -> bool:
        """Whether a missing or partial sample is not a failure yet, because scanners may be starting."""
        if seen is not None and seen.whole:
            self.read, self.whole_at = True, now
            return False
        self.whole_at = now if self.whole_at is None else self.whole_at
        return 0 <= now - self.whole_at < (RESTART_SECONDS if self.read else self.stats.patience_seconds)


class Autoscaler:
    """The decisions on all queues that the operator scales."""

    def __init__(
        self, inventory: Inventory, configs: ScalingConfigs, workers: Workers, work: WorkQueue
    ) -> None:
        """Enqueue a queue in `work` when its number has to change, or its status does."""
        self._inventory, self._configs, self._workers, self._work = inventory, configs, workers, work
        self._of: dict[Key, _Queue] = {}

    def evaluate(self, key: Key, reading: Reading | None, asked: tuple[float, ...], now: float) -> None:
        """Decide from a reading; None if no scanner could be read. `asked` are the horizons of the reading."""
        queue, pods = self._queue(key), self._workers.pods(key)
        policy, replicas = self._configs.of(key).policy, self._replicas(key)
        fleet = queue.stats.fleet(pods, now)
        if policy is None or replicas is None:
            return
        seen = None if reading is None else sample(reading, asked, queue.stats, fleet)
        if seen is None:
            queue.stats.block(pods, now)
        memory = queue.decision.memory if queue.decision else begun(replicas, now)
        previous = replace(memory, replicas=replicas, changes=queue.changes)
        if queue.excused(seen, now):
            if seen is None and not queue.read:
                return  # a new queue without a reading: no decision
            previous = replace(previous, failures=-1)  # the decision increments it to 0
        queue.decide(seen, policy, previous, now)
        self._enqueue_on_change(key, queue, now)

    def suspend(self, key: Key, now: float) -> None:
        """Drop the decision while the operator must not scale the queue, such as on hold."""
        queue = self._of.get(key)
        if queue is not None and not self._configs.of(key).ours:
            del self._of[key]
        elif queue is not None:
            queue.stats.block(self._workers.pods(key), now)
            queue.decision, queue.changes, queue.forecast = None, (), CapacityForecast()

    def decision(self, key: Key, now: float) -> Decision | None:
        """Return the current decision; None without a valid one: the next one then enqueues the queue."""
        queue, replicas, policy = self._of.get(key), self._replicas(key), self._configs.of(key).policy
        if queue is None:
            return None
        last = queue.decision
        if last is None or replicas is None or policy is None or now - last.at > STALE_SECONDS:
            queue.reported = Reported()
            return None
        if last.policy == policy and replicas == last.replicas:
            return _with(last, queue.stats.fleet(self._workers.pods(key), now))
        if last.policy == policy and replicas == last.before:
            return last
        # The same sample again: it must not count twice.
        previous = replace(last.previous, replicas=replicas, changes=queue.changes)
        queue.decide(last.sample, policy, previous, last.at)
        return queue.decision

    def carried_out(self, key: Key, decision: Decision, now: float) -> None:
        """Take note that the number was written."""
        queue = self._of.get(key)
        if queue is None:
            return
        queue.scaled_at, queue.refused = now, None
        before = replace(decision.previous, changes=queue.changes)
        queue.changes = changed(decision.replicas, before, decision.policy.behavior, decision.at)
        if not decision.before:
            queue.woke_at = now
            self._work.enqueue_in(key, queue.stats.patience_seconds)

    def refused(self, key: Key, replicas: int) -> None:
        """Take note that the API server rejected the number: the backoff of the work queue applies."""
        queue = self._of.get(key)
        if queue is not None:
            queue.refused = replicas

    def observed(self, key: Key, now: float) -> Observed:
        """Return the observations for status, besides the decision."""
        queue = self._queue(key) if self._configs.of(key).ours else self._of.get(key)
        if queue is None:
            return Observed()
        return Observed(
            evaluated=queue.decision is not None,
            lead_seconds=queue.stats.lead.seconds,
            handler_seconds=queue.stats.handler.seconds,
            rush=queue.forecast.rush,
            waking=now - queue.woke_at < queue.stats.patience_seconds,
            scaled_at=queue.scaled_at,
        )

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)
        self._configs.forget(key)

    def _queue(self, key: Key) -> _Queue:
        uid = self._inventory.queues.uid(key)
        known = self._of.get(key)
        if known is None or known.uid != uid:
            resource = self._inventory.queues.get(key)
            status = resource.status if resource else {}
            conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            known = _Queue(
                uid=uid,
                stats=self._workers.stats(key),
                forecast=CapacityForecast(reported=conditions.get("CapacityShortfallExpected") == "True"),
                woke_at=_woke_at(status, conditions),
            )
            if resource is not None:
                self._of[key] = known
                if known.woke_at:
                    self._work.enqueue_in(key, known.stats.patience_seconds)
        return known

    def _replicas(self, key: Key) -> int | None:
        """Return spec.replicas of the worker Deployment; None while there is none."""
        child = self._inventory.children.get(key, names.DEPLOYMENT, names.worker(key.name))
        return child.replicas if child else None

    def _enqueue_on_change(self, key: Key, queue: _Queue, now: float) -> None:
        """Enqueue the queue: at once for another number, rate-limited for changes of status only."""
        decision = queue.decision
        assert decision is not None  # noqa: S101 -- it was just made
        if decision.replicas == decision.before:
            queue.refused = None
        elif decision.replicas != queue.refused:
            self._work.enqueue(key)
        wait_seconds = queue.reported.wait_seconds("decided", *_shown(queue, decision), now)
        if wait_seconds is not None:
            self._work.enqueue_in(key, wait_seconds)


def _woke_at(status: Mapping[str, Any], conditions: Mapping[str, str]) -> float:
    """Return when the operator before this one started the first workers, if none was ready yet; else long ago."""
    scaled = (status.get("scaling") or {}).get("lastScaleTime")
    if not scaled or status.get("readyReplicas") or conditions.get("Ready") != "True":
        return 0.0
    return datetime.fromisoformat(scaled).timestamp()


def _with(decision: Decision, fleet: Fleet) -> Decision:
    """Return a decision that was carried out, with the workers that are there by now: for its message."""
    seen = decision.sample
    if seen is None or (seen.ready, seen.starting) == (fleet.ready, fleet.starting):
        return decision
    age = fleet.starting_seconds
    return replace(
        decision,
        sample=replace(seen, ready=fleet.ready, starting=fleet.starting, starting_seconds=age),
    )


def _shown(queue: _Queue, decision: Decision) -> tuple[tuple[object, ...], tuple[float | None, ...]]:
    """Return the numbers and times that status shows: a reason can change with every decision, as a number can."""
    why = decision.reason, decision.limited_by, decision.memory.failures > 0, queue.forecast.rush
    wake = None if decision.wake_seconds is None else decision.at + decision.wake_seconds
    return (*why, queue.stats.lead.seconds, queue.stats.handler.seconds), (wake,)

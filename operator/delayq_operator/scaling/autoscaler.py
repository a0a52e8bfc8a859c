"""Decides on the number of workers after each look at a queue, and remembers what the next decision needs.

The number is written by a reconciliation (apply.py), which asks here. A decision counts for the number of workers that
it was made from: if another client has changed the number or the spec meanwhile, it is made again from this sample.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from delayq.scaling import begun, decide
from delayq.scaling.behavior import changed

from delayq_operator.base import metrics, names
from delayq_operator.scaling.capacity_forecast import CapacityForecast
from delayq_operator.scaling.scaling import Learnt
from delayq_operator.scrape.backlog import SAME_SECONDS
from delayq_operator.scrape.backlog_cache import NUMBERS_SECONDS
from delayq_operator.scrape.sampling import sample
from delayq_operator.scrape.worker_stats import WorkerStats

if TYPE_CHECKING:
    from delayq.scaling import Decision, Memory, Policy, Sample
    from delayq.scaling.memory import Change

    from delayq_operator.base.names import Key
    from delayq_operator.base.work import Work
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scrape.backlog import Reading

log = logging.getLogger(__name__)

STALE_SECONDS: Final = 10.0
"""A look counts so long, or for three periods: after that, nothing is written on its account."""

RESTART_SECONDS: Final = 10.0
"""For as long after a whole look, looks that tell nothing, or not all, are no failures: so long it takes until another
scanner leads, or the only one has started anew."""

NOTICED_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What people would notice of a decision."""

    words: tuple[object, ...]
    wake_at: float | None
    lead_seconds: float | None
    handler_seconds: float | None

    def same(self, other: _Told | None) -> bool:
        """Whether a person would call them the same: numbers are measured anew each time."""
        return (
            other is not None
            and self.words == other.words
            and _close(self.wake_at, other.wake_at, SAME_SECONDS, 0)
            and _close(self.lead_seconds, other.lead_seconds, 1.0, NOTICED_SHARE)
            and _close(self.handler_seconds, other.handler_seconds, 0.001, NOTICED_SHARE)
        )


def _close(one: float | None, other: float | None, seconds: float, share: float) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(seconds, share * other)


@dataclass(slots=True)
class _Queue:
    """What is remembered of one queue."""

    uid: str
    crew: WorkerStats
    outlook: CapacityForecast
    decision: Decision | None = None
    """The latest; its inputs are the latest look."""
    changes: tuple[Change, ...] = ()
    """Those that were carried out: what was only decided uses up nothing of what a policy allows in a period."""
    told: _Told | None = None
    """What a reconciliation was last asked to tell."""
    told_at: float = 0.0
    woke_at: float = 0.0
    scaled_at: float | None = None
    whole_at: float | None = None
    """When a look last told all; before there was one, when the first one was."""
    read: bool = False
    """Whether there was one."""
    refused: int | None = None
    """The number that the API server last refused."""
    replicas: tuple[int, int | None] = field(default=(-1, None))
    """Version of the Deployment, and for how many pods it asks."""

    def decide(self, seen: Sample | None, policy: Policy, previous: Memory, now: float) -> None:
        started = time.perf_counter()
        self.decision = decide(seen, policy, previous, now)
        self.outlook.look(self.decision.shortfall, now)
        metrics.DECISION_SECONDS.observe(time.perf_counter() - started)

    def excused(self, seen: Sample | None, now: float) -> bool:
        """Whether it is no failure yet that a look told nothing, or not all: scanners may just be starting."""
        if seen is not None and seen.whole:
            self.read, self.whole_at = True, now
            return False
        self.whole_at = now if self.whole_at is None else self.whole_at
        return 0 <= now - self.whole_at < (RESTART_SECONDS if self.read else self.crew.patience_seconds)


class Autoscaler:
    """The decisions on all queues that the operator scales."""

    def __init__(self, inventory: Inventory, aims: ScalingConfigs, work: Work) -> None:
        """Mark a queue in `work` when its number has to change, and when there is something to tell."""
        self._inventory, self._aims, self._work = inventory, aims, work
        self._of: dict[Key, _Queue] = {}

    def workers(self, key: Key) -> list[Pod]:
        """Return the pods of its workers."""
        return [pod for pod in self._inventory.pods.of(key) if pod.component == "worker"]

    def crew(self, key: Key) -> WorkerStats:
        """Return what is known of its workers."""
        return self._queue(key).crew

    def look(self, key: Key, reading: Reading | None, asked: tuple[float, ...], now: float) -> None:
        """Decide anew; `reading` is None when no scanner could be read."""
        queue, pods = self._queue(key), self.workers(key)
        policy, replicas = self._aims.of(key).policy, self._replicas(key)
        fleet = queue.crew.fleet(pods, now)
        if policy is None or replicas is None:
            return
        seen = None if reading is None else sample(reading, asked, queue.crew, fleet)
        if seen is None:
            queue.crew.hold_up(pods, now)
        previous = _previous(queue, replicas, now)
        if queue.excused(seen, now):
            if seen is None and not queue.read:
                return  # a new queue without a reading: no decision
            previous = replace(previous, failures=-1)  # so that this one is the zeroth
        queue.decide(seen, policy, previous, now)
        self._tell(key, queue, now)

    def rest(self, key: Key, now: float) -> None:
        """Take note that nothing is to be decided, such as while it is held: what was decided is over."""
        queue = self._of.get(key)
        if queue is not None and not self._aims.of(key).ours:
            del self._of[key]
        elif queue is not None:
            queue.crew.hold_up(self.workers(key), now)
            queue.decision, queue.changes, queue.outlook = None, (), CapacityForecast()

    def decision(self, key: Key, now: float) -> Decision | None:
        """Return what to do now; None when that is not known."""
        queue, replicas, policy = self._of.get(key), self._replicas(key), self._aims.of(key).policy
        if queue is None or queue.decision is None or replicas is None or policy is None:
            return None
        last = queue.decision
        if now - last.at > max(STALE_SECONDS, 3 * policy.period_seconds):
            return None
        if last.policy == policy and replicas in (last.before, last.replicas):
            return last
        # The same look again: it must not count twice.
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
            self._work.mark_in(key, queue.crew.patience_seconds)

    def refused(self, key: Key, replicas: int) -> None:
        """Take note that the API server did not take the number: it is tried again at the pace of what is refused."""
        queue = self._of.get(key)
        if queue is not None:
            queue.refused = replicas

    def learnt(self, key: Key, now: float) -> Learnt:
        """Return what a status says beside the decision."""
        queue = self._of.get(key)
        if queue is None:
            return Learnt()
        return Learnt(
            looked=queue.decision is not None,
            lead_seconds=queue.crew.lead.seconds,
            handler_seconds=queue.crew.handler.seconds,
            rush=queue.outlook.rush,
            waking=now - queue.woke_at < queue.crew.patience_seconds,
            scaled_at=queue.scaled_at,
        )

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a queue."""
        self._of.pop(key, None)
        self._aims.forget(key)

    def _queue(self, key: Key) -> _Queue:
        uid = self._inventory.queues.uid(key)
        known = self._of.get(key)
        if known is None or known.uid != uid:
            resource = self._inventory.queues.get(key)
            status = resource.status if resource else {}
            conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            known = _Queue(
                uid=uid,
                crew=WorkerStats(status.get("scaling") or {}, since=time.time()),
                outlook=CapacityForecast(told=conditions.get("CapacityShortfallExpected") == "True"),
            )
            if resource is not None:
                self._of[key] = known
        return known

    def _replicas(self, key: Key) -> int | None:
        """For how many workers the Deployment asks; None while there is none."""
        child = self._inventory.children.get(key, names.DEPLOYMENT, names.worker(key.name))
        queue = self._of.get(key)
        if child is None or queue is None:
            return None
        if queue.replicas[0] != child.version:
            queue.replicas = (child.version, child.body["spec"].get("replicas", 1))
        return queue.replicas[1]

    def _tell(self, key: Key, queue: _Queue, now: float) -> None:
        """Ask for a reconciliation: at once for another number, now and then for what is only told."""
        decision = queue.decision
        assert decision is not None  # noqa: S101 -- it was just made
        if decision.replicas == decision.before:
            queue.refused = None
        elif decision.replicas != queue.refused:
            self._work.mark(key)
        told = _told(queue, decision)
        if not told.same(queue.told):
            queue.told = told
            if queue.told_at < now:  # else it is still to come
                queue.told_at = max(now, queue.told_at + NUMBERS_SECONDS)
            self._work.mark_in(key, max(0.0, queue.told_at - now))


def _previous(queue: _Queue, replicas: int, now: float) -> Memory:
    """What the last decision left, on the number there really is."""
    if queue.decision is None:
        return begun(replicas, now)
    return replace(queue.decision.memory, replicas=replicas, changes=queue.changes)


def _told(queue: _Queue, decision: Decision) -> _Told:
    wake = decision.wake_seconds
    return _Told(
        words=(decision.reason, decision.limited_by, decision.memory.failures > 0, queue.outlook.rush),
        wake_at=None if wake is None else decision.at + wake,
        lead_seconds=queue.crew.lead.seconds,
        handler_seconds=queue.crew.handler.seconds,
    )

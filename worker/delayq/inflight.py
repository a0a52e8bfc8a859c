"""The slots of a worker: the tasks it is running, and what it still has to tell Redis about those it has run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from delayq.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract import Spec
    from delayq.scripts import Argument
    from delayq.tally import WorkerTally
    from delayq.values import Lease

Verb = Literal["ack", "retry", "bury", "release"]
CancelReason = Literal["timeout", "lease_lost", "drain"]


@dataclass(slots=True, eq=False)
class Running:
    """One slot in use. Times are monotonic seconds."""

    lease: Lease
    extended_at: float
    deadline: float
    handling: asyncio.Task[None] | None = None
    cancelled_for: CancelReason | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Stop the handler; the reason decides what becomes of the task. The first reason stands."""
        if self.cancelled_for is None and self.handling is not None:
            self.cancelled_for = reason
            self.handling.cancel()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of one lease; `arguments` are the verb's own, after the member."""

    verb: Verb
    lease: Lease
    arguments: tuple[Argument, ...] = ()


@dataclass(slots=True)
class Outbox:
    """Settlements that Redis has not confirmed. At most one per slot: a slot claims only after its settlement left."""

    waiting: list[Settlement] = field(default_factory=list)
    sent: int = 0  # those of the round trip under way

    @property
    def unconfirmed(self) -> int:
        """How many settlements Redis may not know of."""
        return len(self.waiting) + self.sent

    def take(self) -> Iterator[tuple[int, Verb, list[Settlement]]]:
        """Empty the box: yield shard, verb and settlements, of each kind together."""
        groups: dict[tuple[int, Verb], list[Settlement]] = {}
        for settlement in self.waiting:
            groups.setdefault((settlement.lease.shard, settlement.verb), []).append(settlement)
        self.waiting = []
        for (shard, verb), settlements in groups.items():
            yield shard, verb, settlements


class Slots:
    """What the services of a worker share: who is running, what is unsettled, where due tasks may be."""

    def __init__(self, spec: Spec, tally: WorkerTally) -> None:
        """All slots are free, and every shard is worth a look."""
        self.delivery, self.tally = spec.delivery, tally
        self.total = tally.slots = spec.worker.concurrency
        self.running: dict[bytes, Running] = {}  # by lease member, in the order they began
        self.outbox = Outbox()
        self.hinted = set(range(spec.shards))  # shards that may hold due tasks
        self.exchanging = False  # a claim may be under way
        self.held = spec.stop_policy != "None"  # the document says to claim nothing
        self.draining = False
        self.blocked = False  # the guard cannot serve
        self.empty = asyncio.Event()  # set once draining has left nothing running or under way
        self.exchange_alarm, self.listener_alarm = Alarm(), Alarm()

    @property
    def free(self) -> int:
        """Slots that could take a task."""
        return self.total - len(self.running)

    @property
    def has_work(self) -> bool:
        """Whether another exchange would have something to send."""
        return bool(self.outbox.waiting) or (bool(self.hinted) and self.may_claim)

    @property
    def may_claim(self) -> bool:
        """Whether there is room for tasks, and nothing forbids taking them."""
        return self.free > 0 and not (self.draining or self.held or self.blocked)

    def hint(self, shard: int) -> None:
        """Let the next exchange claim from this shard."""
        self.hinted.add(shard)
        self.exchange_alarm.ring()

    def ended(self, running: Running, settlement: Settlement | None) -> None:
        """Free a slot, and have its settlement sent; None when the lease was lost."""
        del self.running[running.lease.member]
        if settlement is not None:
            self.outbox.waiting.append(settlement)
        self.exchange_alarm.ring()
        self.check_empty()

    def check_empty(self) -> None:
        """Tell the draining worker once nothing runs and nothing can begin."""
        if self.draining and not self.running and not self.exchanging:
            self.empty.set()

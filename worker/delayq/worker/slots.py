"""The slots of a worker: the tasks it is running, and what it still has to tell Redis about those it has run.

All shard groups share the slots. A group reserves slots for a claim only briefly, so that a server that does not
answer cannot keep slots from the other groups.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Literal

from delayq.protocol.alarm import Alarm
from delayq.worker.claim_tickets import ClaimTickets
from delayq.worker.suspects import Suspects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract import Spec
    from delayq.protocol.results import Lease
    from delayq.protocol.scripts import Argument
    from delayq.service.counters import WorkerCounters
    from delayq.service.shard_groups import ShardGroup

Verb = Literal["ack", "retry", "bury", "release"]
PATIENCE_SECONDS = 0.5  # for which a claim that is not answered keeps slots from other shard groups
CancelReason = Literal["timeout", "lease_lost", "drain", "given_up"]


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
    """Settlements that Redis has not confirmed.

    At most one per slot of a shard group: it claims for a slot only after its settlement left. Others may claim sooner.
    """

    waiting: list[Settlement] = field(default_factory=list)
    sent: int = 0  # those of the round trip under way
    refused: list[Settlement] = field(default_factory=list)  # to be tried again

    @property
    def unconfirmed(self) -> int:
        """How many settlements Redis may not know of."""
        return len(self.waiting) + self.sent + len(self.refused)

    def try_again(self, shard: int) -> None:
        """Send again what was refused for this shard."""
        self.waiting += [each for each in self.refused if each.lease.shard == shard]
        self.refused = [each for each in self.refused if each.lease.shard != shard]

    def take(self) -> Iterator[tuple[int, Verb, list[Settlement]]]:
        """Empty the box: yield shard, verb and settlements, of each kind together."""
        groups: dict[tuple[int, Verb], list[Settlement]] = {}
        for settlement in self.waiting:
            groups.setdefault((settlement.lease.shard, settlement.verb), []).append(settlement)
        self.waiting = []
        for (shard, verb), settlements in groups.items():
            yield shard, verb, settlements


class Slots:
    """What the services of a worker share: who is running, and where due tasks may be."""

    def __init__(self, spec: Spec, counters: WorkerCounters) -> None:
        """All slots are free."""
        self.delivery, self.counters = spec.delivery, counters
        self.total = counters.slots = spec.worker.concurrency  # less those that are stuck
        self.running: dict[bytes, Running] = {}  # by lease member, in the order they began
        self.stuck = 0  # of handlers that were given up and go on
        self.reserved = 0  # for claims under way
        self.group_states: list[GroupState] = []
        # Shards that may hold due tasks, in the order in which it is their turn to be claimed from.
        self.hinted: dict[int, GroupState] = {}
        self.limited = spec.limits.max_in_flight is not None  # the end of a task lets another begin, anywhere
        self.held = spec.stop_policy != "None"  # the document says to claim nothing
        self.draining = False
        self.blocked = False  # the guard cannot serve
        self.suspects = Suspects(drain_seconds=self.delivery.handler_timeout_seconds)
        self.empty = asyncio.Event()  # set once draining has left nothing running or under way

    @property
    def free(self) -> int:
        """Slots that could take a task; below zero when a claim brought tasks so late that others had its slots."""
        return self.total - len(self.running) - self.reserved

    @property
    def busy(self) -> int:
        """Slots that a handler uses."""
        return len(self.running) + self.stuck

    @property
    def may_claim(self) -> bool:
        """Whether there is room for tasks, and nothing forbids taking them."""
        return self.free > 0 and self.open and not self.suspects.blocks

    @property
    def open(self) -> bool:
        """Whether this worker may begin tasks at all."""
        return not (self.draining or self.held or self.blocked or self.total <= 0)

    @property
    def may_listen(self) -> bool:
        """Whether a hint would be of use, now or once a claim under way has brought less than it might."""
        return len(self.running) < self.total and self.open and not self.suspects.blocks

    @property
    def exchanging(self) -> bool:
        """Whether a claim may be under way."""
        return any(group_state.exchanging for group_state in self.group_states)

    @property
    def unconfirmed(self) -> int:
        """How many settlements Redis may not know of."""
        return sum(group_state.outbox.unconfirmed for group_state in self.group_states)

    @property
    def settling(self) -> bool:
        """Whether Redis may hold leases for us that it will have to be asked about, or does not know what became of."""
        return any(
            group_state.exchanging or group_state.outbox.unconfirmed or group_state.claims.lost
            for group_state in self.group_states
        )

    def shares(self, group_state: GroupState) -> list[tuple[int, int]]:
        """Return how many tasks this shard group is to claim from which shards: all that may have some get a share.

        With fewer slots than shards, those go first whose turn has not come for longest. Groups that cannot claim now
        do not count, or slots would wait for a server that hangs.
        """
        free, found = self.free, list[tuple[int, int]]()
        if not self.may_claim:
            return found
        waiting = [shard for shard, other in self.hinted.items() if other is group_state or other.ready]
        share = -(-free // max(1, len(waiting)))
        for shard in waiting[: -(-free // share)]:
            if self.hinted[shard] is group_state:
                found.append((shard, min(share, free)))
            free -= share
        return found

    def isolates(self, group_state: GroupState) -> int | None:
        """Return the shard of this group whose suspects the worker takes now: nothing runs, and nothing can come.

        A server that hangs keeps no suspects of others waiting; what its claim brings too late is handed back.
        """
        if not self.suspects.waiting or group_state.doubtful or self.running or not self.open:
            return None
        if any(each.exchanging and not each.doubtful for each in self.group_states):
            return None
        hinted = any(not each.doubtful for each in self.hinted.values())
        return self.suspects.group_of(group_state.group.shards, time.monotonic(), hinted=hinted)

    def offer(self) -> None:
        """Wake the shard groups whose turn it is for slots that became free."""
        if len(self.group_states) > 1 and self.may_claim:
            waiting = (group_state for group_state in self.hinted.values() if group_state.ready)
            for group_state in islice(waiting, self.free):
                group_state.exchange_alarm.ring()

    def listen(self) -> None:
        """Let those listen again that stopped because there was no room."""
        if self.may_listen:
            for group_state in self.group_states:
                if group_state.deaf:
                    group_state.listener_alarm.ring()

    def ring(self) -> None:
        """Have the claim loop of every shard group look what there is to do."""
        for group_state in self.group_states:
            group_state.exchange_alarm.ring()

    def ended(self, running: Running) -> None:
        """Free a slot."""
        del self.running[running.lease.member]
        if not self.running and self.suspects.running:
            self.claim_again()
        self.offer()
        self.check_empty()

    def withhold(self, slots: int) -> None:
        """Have fewer slots, which are stuck; below zero: have them back."""
        self.stuck += slots
        self.total -= slots

    def claim_again(self) -> None:
        """Look for healthy tasks once a group of suspects has ended."""
        self.suspects.end(time.monotonic())
        for group_state in self.group_states:
            group_state.hint_all()
        self.ring()

    def check_empty(self) -> None:
        """Tell the draining worker once nothing runs and nothing can begin."""
        if self.draining and not self.running and not self.exchanging:
            self.empty.set()


class GroupState:
    """What the services of one shard group share: its settlements, its claim under way, its part of the hints."""

    def __init__(self, slots: Slots, group: ShardGroup) -> None:
        """Every shard of the shard group is worth a look."""
        self.slots, self.group = slots, group
        self.running: dict[bytes, Running] = {}  # those of slots.running that are the shard group's
        self.outbox, self.claims = Outbox(), ClaimTickets()
        self.exchanging = False  # a claim may be under way
        self.doubtful = False  # its server failed or kept us waiting last time: it gets no slot reserved
        self.deaf = False  # the listener waits for room
        self.exchange_alarm, self.listener_alarm = Alarm(), Alarm()
        self._reserved, self._asked_at = 0, 0.0
        self._patience: asyncio.TimerHandle | None = None
        slots.group_states.append(self)
        self.hint_all()

    @property
    def ready(self) -> bool:
        """Whether it would claim if it had a slot."""
        return not (self.exchanging or self.doubtful)

    @property
    def has_work(self) -> bool:
        """Whether another exchange would have something to send."""
        return bool(self.outbox.waiting or self.slots.shares(self) or self.slots.isolates(self) is not None)

    @property
    def hinted(self) -> bool:
        """Whether any of its shards may hold due tasks."""
        return self in self.slots.hinted.values()

    @property
    def idle(self) -> bool:
        """Whether it can go: its shards are gone, and everything is settled."""
        lost = self.claims.lost
        return not (self.group.shards or self.running or self.exchanging or self.outbox.unconfirmed or lost)

    def hint_all(self) -> None:
        """Let the next exchange claim from any shard of the shard group, in any order."""
        shards = self.group.shards
        for shard in random.sample(shards, len(shards)):
            self.slots.hinted.setdefault(shard, self)

    def hint(self, shard: int) -> None:
        """Let the next exchange claim from this shard."""
        self.slots.hinted.setdefault(shard, self)
        self.exchange_alarm.ring()

    def try_again(self, shard: int) -> None:
        """Claim from a shard that was held, and settle what it refused."""
        self.outbox.try_again(shard)
        if shard in self.group.shards:
            self.slots.hinted.setdefault(shard, self)

    def begin(self, running: Running) -> None:
        """Take a slot."""
        self.slots.running[running.lease.member] = self.running[running.lease.member] = running

    def give_up(self, running: Running, settlement: Settlement | None) -> None:
        """Let a task go on without its handler, which ignores its cancellation and uses the slot until it ends."""
        self.slots.withhold(1)
        self.ended(running, settlement)
        running.cancelled_for = "given_up"

    def ended(self, running: Running, settlement: Settlement | None) -> None:
        """Free a slot, and have its settlement sent; None when the lease was lost."""
        if running.cancelled_for == "given_up":
            self.slots.withhold(-1)
            self.slots.ring()
            return
        del self.running[running.lease.member]
        if settlement is not None:
            self.outbox.waiting.append(settlement)
        self.exchange_alarm.ring()
        self.slots.ended(running)

    def asks(self, wanted: int) -> None:
        """Begin an exchange, with slots reserved for what it claims: for a moment, if others could use them."""
        self.exchanging, self._asked_at = True, time.monotonic()
        if not self.doubtful:
            self._reserved = wanted
            self.slots.reserved += wanted
        if len(self.slots.group_states) > 1:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._doubt)

    def _doubt(self) -> None:
        self.doubtful = True
        self._give_back()
        self.slots.offer()

    def _give_back(self) -> None:
        self.slots.reserved -= self._reserved
        self._reserved = 0

    def answered(self, *, well: bool) -> None:
        """End an exchange; what it claimed is yet to begin."""
        if self._patience is not None:
            self._patience.cancel()
        self._give_back()
        self.exchanging = False
        self.doubtful = not well or time.monotonic() - self._asked_at > PATIENCE_SECONDS

    def close(self) -> None:
        """Take no part any more."""
        self.slots.group_states.remove(self)
        for shard in [shard for shard, group_state in self.slots.hinted.items() if group_state is self]:
            del self.slots.hinted[shard]

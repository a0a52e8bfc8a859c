"""The slots of a worker and its running tasks.

All shard groups share the slots. A group reserves slots for a claim only briefly, so that an unresponsive server
cannot block the slots of other groups.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from delayq.protocol.alarm import Alarm
from delayq.worker.claim_backoff import ClaimBackoff
from delayq.worker.settlements import Outbox
from delayq.worker.suspects import Suspects

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from delayq.contract import Spec
    from delayq.protocol.results import Lease
    from delayq.service.counters import WorkerCounters
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.batches import Call
    from delayq.worker.claim_tickets import ClaimTickets
    from delayq.worker.exchange import Exchange, Leased
    from delayq.worker.settlements import Settlement

RESERVATION_SECONDS = 0.5  # for how long an unanswered claim keeps its slots from other shard groups
OVERLAP_TASKS = 32  # the smallest claim that is worth an exchange of its own while others are under way
CancelReason = Literal[
    "timeout", "lease_lost", "drain", "given_up", "requested"
]  # requested: by cancel(running=True)


@dataclass(slots=True, eq=False)
class Running:
    """One slot in use. Times are monotonic seconds."""

    lease: Lease
    extended_at: float
    deadline: float
    handling: asyncio.Task[None] | None = None
    begun_at: float = 0.0  # its first step: an asyncio task that is cancelled before it runs nothing at all
    cancelled_for: CancelReason | None = None
    requested_at: float = 0.0  # when its handler was cancelled for this reason
    call: Call | None = None  # of a handler that takes several tasks at once; instead of `handling`
    judged: bool = False  # the handler of the call has returned an outcome of this task
    handed_back: bool = False  # it must not begin: see backup_renewal.py, which sets it in its thread

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the handler, or do not begin it; the reason decides about the settlement. The first reason counts.

        A call is not cancelled because one of several leases is lost, or one of several tasks is to be cancelled.
        """
        if self.cancelled_for is not None:
            return
        if self.call is not None:
            self.cancelled_for = reason
            self.call.cancel(reason)
        elif self.handling is not None:
            self.cancelled_for = reason
            if self.begun_at:
                self.handling.cancel()

    @property
    def started_at(self) -> float:
        """When its handler was called; 0 before."""
        return self.begun_at if self.call is None else self.call.begun_at

    @property
    def interrupted(self) -> bool:
        """Whether its handler was cancelled, if `cancelled_for` is set."""
        return self.call is None or self.call.cancelled

    @property
    def shared(self) -> bool:
        """Whether an error of the handler may be the fault of another task."""
        return self.call is not None and not self.judged and len(self.call.members) > 1

    @property
    def explains(self) -> bool:
        """Whether the log of its failure has the traceback: of tasks that share an error, the first."""
        return self.call is None or not self.shared or self.call.members[0] is self


@dataclass(slots=True, eq=False)
class Reservation:
    """The slots of an exchange under way."""

    slots: int
    began_at: float  # monotonic seconds
    timer: asyncio.TimerHandle | None = None
    claims_returned: bool = False  # see backup_renewal.py, which sets it in its thread


class Slots:
    """State shared by the services of a worker: running tasks, and shards that may have due tasks."""

    def __init__(self, spec: Spec, counters: WorkerCounters, largest_batch: int = 0) -> None:
        """All slots are free. `largest_batch`: the most tasks that the handler takes in one call."""
        self.delivery, self.counters, self.largest_batch = spec.delivery, counters, largest_batch
        self.total = counters.slots = spec.worker.concurrency  # less those that are stuck or unusable
        self.running: dict[bytes, Running] = {}  # by lease member, in the order they began
        self.stuck = 0  # used by abandoned handlers that still run
        self.unusable = 0  # withheld while handlers cannot begin: see slot_limit.py
        self.reserved = 0  # for claims under way
        self.group_states: list[GroupState] = []
        self.hinted: dict[
            int, GroupState
        ] = {}  # shards that may have due tasks, in the order of the next claims
        self.limited = (
            spec.limits.max_in_flight is not None
        )  # the end of a task allows another worker a claim
        self.held = spec.suspend
        self.suspended = False  # by `delayq suspend`, or not known yet: see suspension.py
        self.draining = False
        self.blocked = False  # the guard cannot serve
        self.awaiting = False  # the handler lacks a mounted file: see awaited_files.py
        self.suspects = Suspects(drain_seconds=self.delivery.handler_timeout_seconds)
        self.empty = asyncio.Event()  # set while draining, once no task runs and no claim is under way

    @property
    def free(self) -> int:
        """Free slots; negative after a late claim whose slots other groups have used."""
        return self.total - len(self.running) - self.reserved

    @property
    def full(self) -> bool:
        """Whether tasks use all slots."""
        return len(self.running) >= self.total

    @property
    def busy(self) -> int:
        """Slots that handlers use."""
        return len(self.running) + self.stuck

    @property
    def may_claim(self) -> bool:
        """Whether the worker may claim healthy tasks now."""
        return self.free > 0 and self.open and not self.suspects.blocks

    @property
    def open(self) -> bool:
        """Whether this worker may start tasks."""
        return not (self.draining or self.stopped or self.blocked or self.awaiting or self.total <= 0)

    @property
    def stopped(self) -> bool:
        """Whether the document or `delayq suspend` stops the tasks of the queue."""
        return self.held or self.suspended

    @property
    def may_listen(self) -> bool:
        """Whether a wake token is useful, now or after a claim under way that does not fill its slots."""
        return not self.full and self.open and not self.suspects.blocks

    @property
    def exchanging(self) -> bool:
        """Whether a claim may be under way."""
        return any(group_state.exchanging for group_state in self.group_states)

    @property
    def unconfirmed(self) -> int:
        """The number of settlements without a reply."""
        return sum(group_state.outbox.unconfirmed for group_state in self.group_states)

    @property
    def settling(self) -> bool:
        """Whether Redis may hold leases of this worker that are not settled or not known here."""
        return any(
            group_state.exchanging or group_state.outbox.unconfirmed or group_state.lost_claims
            for group_state in self.group_states
        )

    def shares(self, group_state: GroupState) -> list[tuple[int, int]]:
        """Return from which shards, and how many tasks, this shard group claims: hinted shards share the free slots.

        With many slots at most half of them, or a whole batch, so that the next exchange finds free ones while
        handlers run (claim_loop.py). Exchanges of few tasks would cost more CPU than this saves time.
        With fewer slots than shards, the shards that waited longest go first. Groups that cannot claim now do not
        count: slots must not wait for a server that hangs.
        """
        if not self.may_claim:
            return []
        free = self.free
        if self.total >= 2 * OVERLAP_TASKS:
            free = min(free, max(-(-self.total // 2), self.largest_batch))
        found: list[tuple[int, int]] = []
        waiting = [shard for shard, other in self.hinted.items() if other is group_state or other.ready]
        share = -(-free // max(1, len(waiting)))
        for shard in waiting[: -(-free // share)]:
            if self.hinted[shard] is group_state:
                found.append((shard, min(share, free)))
            free -= share
        return found

    def isolates(self, group_state: GroupState) -> int | None:
        """Return the shard of this group whose suspects the worker claims now: no task runs, no claim is under way.

        A server that hangs does not delay suspects of others: the tasks of its late claim are released.
        """
        if not self.suspects.waiting or group_state.unresponsive or self.running or not self.open:
            return None
        if any(each.exchanging and not each.unresponsive for each in self.group_states):
            return None
        hinted = any(not each.unresponsive for each in self.hinted.values())
        return self.suspects.group_of(group_state.group.shards, time.monotonic(), hinted=hinted)

    def offer(self) -> None:
        """Wake the shard groups that are next to use free slots."""
        if len(self.group_states) > 1 and self.may_claim:
            waiting = (group_state for group_state in self.hinted.values() if group_state.ready)
            for group_state in islice(waiting, self.free):
                group_state.exchange_alarm.ring()

    def listen(self) -> None:
        """Wake the listeners that paused for want of a free slot."""
        if self.may_listen:
            for group_state in self.group_states:
                if group_state.listener_paused:
                    group_state.listener_alarm.ring()

    def ring(self) -> None:
        """Wake the claim loop of every shard group."""
        for group_state in self.group_states:
            group_state.exchange_alarm.ring()

    def freed(self) -> None:
        """Use slots that have become free."""
        if not self.running:
            if self.suspects.running:
                self.claim_again()
            self.check_empty()
        if len(self.group_states) > 1:
            self.offer()

    def withhold(self, slots: int) -> None:
        """Mark slots as stuck; a negative number returns them."""
        self.stuck += slots
        self.total -= slots

    def limit_by(self, slots: int) -> None:
        """Use so many slots less; a negative number returns them."""
        self.unusable += slots
        self.total -= slots
        if slots < 0:
            self.ring()

    def claim_again(self) -> None:
        """Claim healthy tasks again after a group of suspects."""
        self.suspects.end(time.monotonic())
        self.claim_all()

    def claim_all(self) -> None:
        """Claim from every shard."""
        for group_state in self.group_states:
            group_state.hint_all()
        self.ring()

    def drain(self) -> None:
        """Start no more tasks, and the calls that wait for more of them at once."""
        self.draining = True
        self.begin_calls()

    def begin_calls(self) -> None:
        """Begin the calls that wait for more tasks: none can join them soon."""
        for group_state in self.group_states:
            for call in group_state.filling.values():
                call.begin()

    def check_empty(self) -> None:
        """While draining, set `empty` once no task runs and none can start."""
        if self.draining and not self.running and not self.exchanging:
            self.empty.set()


class GroupState:
    """State shared by the services of one shard group: running tasks, settlements, the claim under way, hints."""

    def __init__(self, slots: Slots, group: ShardGroup) -> None:
        """Every shard of the shard group may have due tasks."""
        self.slots, self.group = slots, group
        self.running: dict[bytes, Running] = {}  # the shard group's part of slots.running
        self.filling: dict[tuple[str, int, int], Call] = {}  # by kind, version and size
        self.outbox = Outbox()
        self.claims: list[ClaimTickets] = []  # one for each connection that claims
        self.exchanges: list[Exchange] = []  # under way, the oldest first
        self.unstarted: list[Leased] = []  # not empty between two steps only if memory was lacking
        self.unresponsive = False  # its last exchange failed or was slow: no slots are reserved for it
        self.listener_paused = False  # until a slot is free
        self.backoff = ClaimBackoff()
        self.exchange_alarm, self.listener_alarm = Alarm(), Alarm()
        self._reservations: set[Reservation] = set()
        slots.group_states.append(self)
        self.hint_all()

    @property
    def exchanging(self) -> bool:
        """Whether a claim may be under way, or its tasks wait for their start."""
        return bool(self._reservations or self.unstarted)

    @property
    def lost_claims(self) -> bool:
        """Whether Redis may hold leases of claims whose reply was lost."""
        return any(claims.lost for claims in self.claims)

    @property
    def ready(self) -> bool:
        """Whether it can claim once a slot is free."""
        return not (self.exchanging or self.unresponsive)

    @property
    def has_work(self) -> bool:
        """Whether the next exchange has something to send."""
        return bool(self.outbox.waiting or self.slots.shares(self) or self.slots.isolates(self) is not None)

    @property
    def hinted(self) -> bool:
        """Whether any of its shards may have due tasks."""
        return self in self.slots.hinted.values()

    @property
    def idle(self) -> bool:
        """Whether it can be closed: it has no shards, and everything is settled."""
        waits = self.exchanging or self.outbox.unconfirmed or self.lost_claims
        return not (self.group.shards or self.running or waits)

    def hint_all(self) -> None:
        """Claim from every shard of the shard group in the next exchange, in random order."""
        shards = self.group.shards
        for shard in random.sample(shards, len(shards)):
            self.slots.hinted.setdefault(shard, self)

    def hint(self, shard: int) -> None:
        """Claim from this shard in the next exchange."""
        self.slots.hinted.setdefault(shard, self)
        self.exchange_alarm.ring()

    def try_again(self, shard: int) -> None:
        """Claim from a shard after its backoff, and send its rejected settlements again."""
        self.outbox.try_again(shard)
        if shard in self.group.shards:
            self.slots.hinted.setdefault(shard, self)

    def begin(
        self, running: Running, run: Callable[[Running], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """Take a slot, and let the event loop call `run`; without it, the task runs in a call of several."""
        member = running.lease.member
        try:
            self.slots.running[member] = self.running[member] = running
            if run is not None:
                running.handling = asyncio.get_running_loop().create_task(run(running))
        except BaseException:  # for want of memory: what follows needs none
            running.handed_back = True
            self.slots.running.pop(member, None)
            self.running.pop(member, None)
            raise

    def give_up(self, running: Running, settlement: Settlement | None) -> None:
        """Settle a task whose handler ignores its cancellation; the handler uses the slot until it ends."""
        self.slots.withhold(1)
        self.ended(running, settlement)
        running.cancelled_for = "given_up"

    def ended(self, running: Running, settlement: Settlement | None) -> None:
        """Free a slot and send its settlement, None when the lease was lost."""
        self._end(running, settlement)
        self.exchange_alarm.ring()
        self.slots.freed()

    def all_ended(self, ended: Iterable[tuple[Running, Settlement | None]]) -> None:
        """Free the slots of tasks that ended together, as `ended` does."""
        for running, settlement in ended:
            self._end(running, settlement)
        self.exchange_alarm.ring()
        self.slots.freed()

    def _end(self, running: Running, settlement: Settlement | None) -> None:
        if running.cancelled_for == "given_up":
            self.slots.withhold(-1)
            self.slots.ring()
            return
        member = running.lease.member
        if self.running.get(member) is not running:
            return  # for want of memory, its start failed after the event loop had it; it may have been started again
        del self.running[member], self.slots.running[member]
        if settlement is not None:
            settlement.running = running
            self.outbox.waiting.append(settlement)

    def begin_exchange(self, wanted: int) -> Reservation:
        """Reserve slots for a claim; with several shard groups, only for RESERVATION_SECONDS."""
        reservation = Reservation(0 if self.unresponsive else wanted, time.monotonic())
        self.slots.reserved += reservation.slots
        self._reservations.add(reservation)
        if len(self.slots.group_states) > 1:
            loop = asyncio.get_running_loop()
            reservation.timer = loop.call_later(RESERVATION_SECONDS, self._time_out, reservation)
        return reservation

    def _time_out(self, reservation: Reservation) -> None:
        self.unresponsive = True
        self._unreserve(reservation)
        self.slots.offer()

    def _unreserve(self, reservation: Reservation) -> None:
        self.slots.reserved -= reservation.slots
        reservation.slots = 0

    def end_exchange(self, reservation: Reservation, *, served: bool) -> None:
        """Release the reserved slots; the caller starts the claimed tasks afterwards."""
        if reservation.timer is not None:
            reservation.timer.cancel()
        self._unreserve(reservation)
        self._reservations.discard(reservation)
        self.unresponsive = not served or time.monotonic() - reservation.began_at > RESERVATION_SECONDS

    def close(self) -> None:
        """Remove this shard group from the worker."""
        self.slots.group_states.remove(self)
        for shard in [shard for shard, group_state in self.slots.hinted.items() if group_state is self]:
            del self.slots.hinted[shard]

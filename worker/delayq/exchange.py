"""The exchange: one round trip settles what ended since the last one and claims into what is free.

That is all the batching there is. Nothing waits for a batch to fill: while a round trip is under way, more tasks end.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from delayq.broker import BATCH
from delayq.errors import EnvelopeTooNew, Unavailable
from delayq.held import Held
from delayq.inflight import Running, Settlement
from delayq.values import Settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.broker import Broker, Call
    from delayq.connection import AsyncConnection
    from delayq.inflight import Desk, Verb
    from delayq.running import Runner
    from delayq.values import Claimed, Lease

log = logging.getLogger(__name__)

TOO_NEW_PAUSE_MS = 30_000  # before a task that only a newer worker can read is offered again


class Exchange:
    """One round trip after the other, over one lane."""

    blocks = False

    def __init__(self, desk: Desk, broker: Broker, connection: AsyncConnection, runner: Runner) -> None:
        """Settle and claim over `connection`."""
        self.name = desk.lane.named("exchange")
        self._desk, self._slots = desk, desk.slots
        self._broker, self._connection, self._runner = broker, connection, runner
        self._delivery, self._tally = self._slots.delivery, self._slots.tally
        self._block_seconds = self._delivery.max_block_milliseconds / 1000
        self._poll_at = 0.0  # monotonic seconds of the next look of one's own
        self._held = Held()
        self._loop = asyncio.get_running_loop()
        self.alarm = desk.exchange_alarm

    async def step(self) -> float:
        """Settle what ended and claim into what is free; returns the seconds until the next unasked look."""
        now, desk = time.monotonic(), self._desk
        if now >= self._poll_at:
            # Hints may be lost; a look of one's own at most this late is what the queue promises.
            desk.look()
            self._poll_at = now + self._block_seconds * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads load
        for shard in self._held.due(now):
            desk.try_again(shard)
        settling, claiming = list(self._settlements()), list(self._claims())
        if settling or claiming:
            await self._round_trip(settling, claiming)
        elif desk.doubtful and desk.hinted:
            await self._try()
        if desk.has_work:
            return 0.0
        self._listen()
        now = time.monotonic()
        return max(0.001, min(self._poll_at - now, self._held.next_in(now)))

    def _listen(self) -> None:
        """Have our listener listen, and those of other lanes that had no room."""
        self._desk.listener_alarm.ring()
        self._slots.listen()

    async def _try(self) -> None:
        """Ask a server that we have doubts about something harmless: without a free slot nothing else would."""
        self._desk.asks(0)
        [answer] = await self._answers([self._broker.wake(shard) for shard in self._desk.lane.shards[:1]])
        self._desk.answered(well=not isinstance(answer, Exception))
        if isinstance(answer, Exception):
            raise answer

    def _settlements(self) -> Iterable[tuple[Call[Any], list[Settlement]]]:
        for shard, verb, settlements in self._desk.outbox.take():
            if self._slots.limited:
                self._slots.hinted.setdefault(shard, self._desk)
            for at in range(0, len(settlements), BATCH):
                batch = settlements[at : at + BATCH]
                yield self._settle_call(shard, verb, batch), batch

    def _settle_call(self, shard: int, verb: Verb, batch: list[Settlement]) -> Call[list[Settled]]:
        if verb == "ack":
            return self._broker.ack(shard, [each.lease.member for each in batch])
        flat = [argument for each in batch for argument in (each.lease.member, *each.arguments)]
        if verb == "retry":
            return self._broker.retry(shard, flat, max_attempts=self._delivery.max_attempts)
        if verb == "bury":
            return self._broker.bury(shard, flat)
        return self._broker.release(shard, flat)

    def _claims(self) -> Iterable[tuple[Call[Claimed], int, int]]:
        """Claim our share of the free slots from the shards that may hold due tasks.

        A hint is used up here, before the claim: one that comes while the claim is under way may tell of a task that
        the claim did not see, and has to stay.
        """
        for shard, limit in self._slots.shares(self._desk):
            del self._slots.hinted[shard]
            yield self._broker.claim(shard, limit, self._delivery.lease_seconds * 1000), shard, limit

    async def _round_trip(
        self,
        settling: list[tuple[Call[Any], list[Settlement]]],
        claiming: list[tuple[Call[Claimed], int, int]],
    ) -> None:
        sent_at, desk = time.monotonic(), self._desk
        desk.outbox.sent = sum(len(batch) for _, batch in settling)
        desk.asks(sum(limit for *_, limit in claiming))
        calls = [*(call for call, _ in settling), *(call for call, *_ in claiming)]
        answers = await self._answers([*calls, *self._passed_on(settling, claiming)])
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        outages = [error for error in errors if isinstance(error, Unavailable)]
        desk.answered(well=not outages)
        desk.outbox.sent = 0
        for (_, batch), answer in zip(settling, answers, strict=False):
            self._settled(batch, answer)
        for (_, shard, _), answer in zip(claiming, answers[len(settling) : len(calls)], strict=True):
            self._claimed(shard, answer, sent_at)
        self._slots.offer()  # what was reserved and not used
        self._slots.check_empty()  # whatever came of it, no claim is under way now
        if outages or (errors and self._held.all_refused(desk.lane.shards)):
            raise (outages or errors)[0]

    def _passed_on(
        self,
        settling: list[tuple[Call[Any], list[Settlement]]],
        claiming: list[tuple[Call[Claimed], int, int]],
    ) -> Iterable[Call[Any]]:
        """Have others look where we make room under maxInFlight and cannot use it: we drain, or our slots are taken."""
        if self._slots.limited:
            settled = {batch[0].lease.shard for _, batch in settling}
            yield from map(self._broker.wake, settled - {shard for _, shard, _ in claiming})

    async def _answers(self, calls: list[Call[Any]]) -> list[Any]:
        """Each call's answer or error. When the round trip itself fails, that is the answer to every call."""
        try:
            return await self._connection.answers(calls)
        except asyncio.CancelledError:
            self._desk.answered(well=False)
            raise
        except Exception as error:  # noqa: BLE001 -- raised again once everything is back in its place
            return [error] * len(calls)

    def _settled(self, batch: list[Settlement], answer: list[Settled] | Exception) -> None:
        if isinstance(answer, Unavailable):
            self._desk.outbox.waiting[:0] = batch
            return
        if isinstance(answer, Exception):
            self._desk.outbox.refused += batch
            self._refused(batch[0].lease.shard, answer)
            return
        settled = self._tally.settled
        for settlement, outcome in zip(batch, answer, strict=True):
            settled[outcome] += 1
            if outcome is Settled.LEASE_LOST:
                task = settlement.lease.task
                fields = {"task_id": task.id, "token": task.token, "verb": settlement.verb}
                log.warning("lease_lost", extra={"fields": fields})

    def _claimed(self, shard: int, answer: Claimed | Exception, sent_at: float) -> None:
        if isinstance(answer, Unavailable):
            self._slots.hinted.setdefault(shard, self._desk)
            return
        if isinstance(answer, Exception):
            self._refused(shard, answer)
            return
        if answer.more:
            self._slots.hinted.setdefault(shard, self._desk)
        self._held.note(shard, answer, time.monotonic())
        if self._tally.first_claim is None:
            self._tally.first_claim = (
                time.time()
            )  # of this clock, and not of Redis': held against the pod's creation
        self._tally.claimed += len(answer.leases)
        deadline = time.monotonic() + self._delivery.handler_timeout_seconds
        # Told to stop while the claim was under way, or so late that other lanes have the slots: others can begin.
        room = 0 if self._slots.draining else max(0, self._slots.free)
        for lease in answer.leases:
            self._tally.due_to_claimed.observe((answer.now_ms - lease.task.due_ms) / 1000)
        for lease in answer.leases[:room]:
            self._start(Running(lease, sent_at, deadline))
        for lease in answer.leases[room:]:
            self._desk.outbox.waiting.append(Settlement("release", lease, (lease.task.due_ms,)))
        for lease, error in answer.unreadable:
            self._desk.outbox.waiting.append(_unreadable(lease, error))

    def _refused(self, shard: int, error: Exception) -> None:
        """Let a shard alone for a moment that has a trouble of its own; the others go on."""
        times = self._held.refuse(shard, time.monotonic())
        if times & (times - 1) == 0:  # the 1st, 2nd, 4th, … in a row
            fields = {"shard": shard, "error": str(error), "times": times}
            log.warning("shard_refused", extra={"fields": fields})

    def _start(self, running: Running) -> None:
        self._desk.begin(running)
        running.handling = self._loop.create_task(self._run(running))
        running.handling.add_done_callback(partial(self._ended, running))

    async def _run(self, running: Running) -> None:
        self._desk.ended(running, await self._runner.run(running))

    def _ended(self, running: Running, handling: asyncio.Task[None]) -> None:
        """End what `_run` did not: a task cancelled before its first step never enters it."""
        if running.lease.member not in self._slots.running:
            return
        settlement = None  # should this fail, too, the lease runs out; the slot is free in any case
        try:
            error = asyncio.CancelledError() if handling.cancelled() else handling.exception()
            settlement = self._runner.settlement(running, error)
        finally:
            self._desk.ended(running, settlement)


def _unreadable(lease: Lease, error: Exception) -> Settlement:
    fields = {"task_id": lease.task.id, "error": str(error)}
    if isinstance(error, EnvelopeTooNew):
        log.error("envelope_too_new", extra={"fields": fields})
        # Charged like a failure, so that it does not go round for ever; by then the dead letter can be run again.
        return Settlement("retry", lease, (TOO_NEW_PAUSE_MS, 1, f"unreadable: {error}"))
    log.error("envelope_unreadable", extra={"fields": fields})
    return Settlement("bury", lease, (f"unreadable: {error}",))

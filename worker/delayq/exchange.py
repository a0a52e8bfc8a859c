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
from delayq.errors import EnvelopeTooNew
from delayq.inflight import Running, Settlement
from delayq.values import Settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.broker import Broker, Call
    from delayq.connection import AsyncConnection
    from delayq.inflight import Slots, Verb
    from delayq.running import Runner
    from delayq.values import Claimed, Lease

log = logging.getLogger(__name__)

TOO_NEW_PAUSE_MS = 30_000  # before a task that only a newer worker can read is offered again


class Exchange:
    """One round trip after the other."""

    name, blocks = "exchange", False

    def __init__(self, slots: Slots, broker: Broker, connection: AsyncConnection, runner: Runner) -> None:
        """Settle and claim over `connection`."""
        self._slots, self._broker, self._connection, self._runner = slots, broker, connection, runner
        self._delivery, self._tally = slots.delivery, slots.tally
        self._block_seconds = slots.delivery.max_block_milliseconds / 1000
        self._poll_at = 0.0  # monotonic seconds of the next look of one's own
        self._loop = asyncio.get_running_loop()
        self.alarm = slots.exchange_alarm

    async def step(self) -> float:
        """Settle what ended and claim into what is free; returns the seconds until the next unasked look."""
        now = time.monotonic()
        if now >= self._poll_at:
            # Hints may be lost; a look of one's own at most this late is what the queue promises.
            self._slots.hinted.update(range(len(self._broker.shards)))
            self._poll_at = now + self._block_seconds * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads load
        settling = list(self._settlements())
        claiming = list(self._claims())
        if settling or claiming:
            await self._round_trip(settling, claiming)
        if self._slots.has_work:
            return 0.0
        self._slots.listener_alarm.ring()
        return max(0.001, self._poll_at - time.monotonic())

    def _settlements(self) -> Iterable[tuple[Call[Any], list[Settlement]]]:
        for shard, verb, settlements in self._slots.outbox.take():
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

    def _claims(self) -> Iterable[tuple[Call[Claimed], int]]:
        """Share the free slots among the shards that may hold due tasks.

        A hint is used up here, before the claim: one that comes while the claim is under way may tell of a task that
        the claim did not see, and has to stay.
        """
        free, hinted = self._slots.free, self._slots.hinted
        if not hinted or not self._slots.may_claim:
            return
        share = -(-free // len(hinted))
        for shard in random.sample(sorted(hinted), min(len(hinted), -(-free // share))):
            limit = min(share, free)
            free -= limit
            hinted.discard(shard)
            yield self._broker.claim(shard, limit, self._delivery.lease_seconds * 1000), shard

    async def _round_trip(
        self, settling: list[tuple[Call[Any], list[Settlement]]], claiming: list[tuple[Call[Claimed], int]]
    ) -> None:
        sent_at = time.monotonic()
        self._slots.outbox.sent = sum(len(batch) for _, batch in settling)
        answers = await self._answers([call for call, _ in (*settling, *claiming)])
        self._slots.outbox.sent = 0
        for (_, batch), answer in zip(settling, answers, strict=False):
            self._settled(batch, answer)
        for (_, shard), answer in zip(claiming, answers[len(settling) :], strict=True):
            self._claimed(shard, answer, sent_at)
        self._slots.check_empty()  # whatever came of it, no claim is under way now
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer

    async def _answers(self, calls: list[Call[Any]]) -> list[Any]:
        """Each call's answer or error. When the round trip itself fails, that is the answer to every call."""
        self._slots.exchanging = True
        try:
            return await self._connection.answers(calls)
        except Exception as error:  # noqa: BLE001 -- raised again once everything is back in its place
            return [error] * len(calls)
        finally:
            self._slots.exchanging = False

    def _settled(self, batch: list[Settlement], answer: list[Settled] | Exception) -> None:
        if isinstance(answer, Exception):
            self._slots.outbox.waiting[:0] = batch
            return
        settled = self._tally.settled
        for settlement, outcome in zip(batch, answer, strict=True):
            settled[outcome] += 1
            if outcome is Settled.LEASE_LOST:
                task = settlement.lease.task
                fields = {"task_id": task.id, "token": task.token, "verb": settlement.verb}
                log.warning("lease_lost", extra={"fields": fields})

    def _claimed(self, shard: int, answer: Claimed | Exception, sent_at: float) -> None:
        if isinstance(answer, Exception) or answer.more:
            self._slots.hinted.add(shard)
        if isinstance(answer, Exception):
            return
        if self._tally.first_claim is None:
            self._tally.first_claim = (
                time.time()
            )  # of this clock, and not of Redis': held against the pod's creation
        self._tally.claimed += len(answer.leases)
        deadline = time.monotonic() + self._delivery.handler_timeout_seconds
        for lease in answer.leases:
            self._tally.due_to_claimed.observe((answer.now_ms - lease.task.due_ms) / 1000)
            if self._slots.draining:  # told to stop while the claim was under way: others can begin at once
                self._slots.outbox.waiting.append(Settlement("release", lease, (lease.task.due_ms,)))
            else:
                self._start(Running(lease, sent_at, deadline))
        for lease, error in answer.unreadable:
            self._slots.outbox.waiting.append(_unreadable(lease, error, answer.now_ms))

    def _start(self, running: Running) -> None:
        self._slots.running[running.lease.member] = running
        running.handling = self._loop.create_task(self._run(running))
        running.handling.add_done_callback(partial(self._ended, running))

    async def _run(self, running: Running) -> None:
        self._slots.ended(running, await self._runner.run(running))

    def _ended(self, running: Running, handling: asyncio.Task[None]) -> None:
        """End what `_run` did not: a task cancelled before its first step never enters it."""
        if running.lease.member not in self._slots.running:
            return
        settlement = None  # should this fail, too, the lease runs out; the slot is free in any case
        try:
            error = asyncio.CancelledError() if handling.cancelled() else handling.exception()
            settlement = self._runner.settlement(running, error)
        finally:
            self._slots.ended(running, settlement)


def _unreadable(lease: Lease, error: Exception, now_ms: int) -> Settlement:
    fields = {"task_id": lease.task.id, "error": str(error)}
    if isinstance(error, EnvelopeTooNew):
        log.error("envelope_too_new", extra={"fields": fields})
        return Settlement("release", lease, (now_ms + TOO_NEW_PAUSE_MS,))
    log.error("envelope_unreadable", extra={"fields": fields})
    return Settlement("bury", lease, (f"unreadable: {error}",))

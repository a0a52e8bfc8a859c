"""The worker: claims due tasks into free slots, runs them, settles them. A task is never held before it is due.

Three services share one state: Exchange (one round trip settles what ended and claims into what is free), Listener
(blocks on the wake lists while there are free slots) and Watchdog (extends leases, enforces handler time-outs).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from delayq.alarm import Alarm
from delayq.broker import BATCH
from delayq.errors import DelayQError, EnvelopeTooNew, Unavailable
from delayq.inflight import Outbox, Running, Settlement
from delayq.running import Runner
from delayq.values import Claimed, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.broker import Broker, Call
    from delayq.connection import AsyncConnection, Hints
    from delayq.contract import Spec
    from delayq.handlers import Handler
    from delayq.inflight import Verb
    from delayq.tally import WorkerTally
    from delayq.values import Lease

log = logging.getLogger(__name__)

TOO_NEW_PAUSE_MS = 30_000  # before a task that only a newer worker can read is offered again


class State:
    """What the three services of a worker share."""

    def __init__(self, slots: int, shards: int) -> None:
        """All slots free, every shard worth a look."""
        self.slots = slots
        self.running: dict[str, Running] = {}
        self.outbox = Outbox()
        self.hinted = set(range(shards))
        self.draining = False
        self.empty = asyncio.Event()  # set once draining has left nothing running
        self.exchange_alarm, self.listener_alarm = Alarm(), Alarm()

    @property
    def free(self) -> int:
        """Slots that could take a task."""
        return self.slots - len(self.running)

    @property
    def has_work(self) -> bool:
        """Whether another exchange would have something to send."""
        return bool(self.outbox.waiting) or (bool(self.hinted) and self.free > 0 and not self.draining)

    def hint(self, shards: Iterable[int]) -> None:
        """Let the next exchange claim from these shards."""
        self.hinted.update(shards)
        self.exchange_alarm.ring()


class Exchange:
    """One round trip after the other: what ended since the last one goes out together with the next claim."""

    name = "exchange"

    def __init__(
        self, broker: Broker, connection: AsyncConnection, state: State, runner: Runner, spec: Spec, tally: WorkerTally
    ) -> None:
        """Settle and claim over `connection`."""
        self._broker, self._connection, self._state, self._runner = broker, connection, state, runner
        self._delivery, self._tally = spec.delivery, tally
        self._block_seconds = spec.delivery.max_block_milliseconds / 1000
        self._poll_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.alarm = state.exchange_alarm

    async def step(self) -> float:
        """Settle what ended and claim into what is free; returns the seconds until the next unasked look."""
        now = time.monotonic()
        if now >= self._poll_at:
            # Hints may be lost; a look of one's own at most this late is what the queue promises.
            self._state.hinted.update(range(len(self._broker.shards)))
            self._poll_at = now + self._block_seconds * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads load
        settling = list(self._settlements())
        claiming = list(self._claims())
        if settling or claiming:
            await self._round_trip(settling, claiming)
        if self._state.has_work:
            return 0.0
        self._state.listener_alarm.ring()
        return max(0.001, self._poll_at - time.monotonic())

    def _settlements(self) -> Iterable[tuple[Call[Any], list[Settlement]]]:
        for shard, verb, settlements in self._state.outbox.take():
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
        free, hinted = self._state.free, self._state.hinted
        if self._state.draining or free <= 0 or not hinted:
            return
        share = -(-free // len(hinted))
        for shard in random.sample(sorted(hinted), len(hinted)):
            limit = min(share, free)
            if limit <= 0:
                return
            free -= limit
            yield self._broker.claim(shard, limit, self._delivery.lease_seconds * 1000), shard

    async def _round_trip(
        self, settling: list[tuple[Call[Any], list[Settlement]]], claiming: list[tuple[Call[Claimed], int]]
    ) -> None:
        calls = [call for call, _ in settling] + [call for call, _ in claiming]
        sent_at = time.monotonic()
        try:
            answers = await self._connection.answers(calls)
        except Unavailable:
            self._state.outbox.waiting[:0] = [each for _, batch in settling for each in batch]
            raise
        failures = [self._settled(batch, answer) for (_, batch), answer in zip(settling, answers, strict=False)]
        for (_, shard), answer in zip(claiming, answers[len(settling) :], strict=True):
            if isinstance(answer, DelayQError):
                failures.append(answer)
            else:
                self._claimed(answer, shard, sent_at)
        for failure in failures:
            if failure is not None:
                raise failure

    def _settled(self, batch: list[Settlement], answer: list[Settled] | DelayQError) -> DelayQError | None:
        if isinstance(answer, DelayQError):
            self._state.outbox.waiting[:0] = batch
            return answer
        settled = self._tally.settled
        for settlement, outcome in zip(batch, answer, strict=True):
            settled[outcome] += 1
            if outcome is Settled.LEASE_LOST:
                task = settlement.lease.task
                fields = {"id": task.id, "token": task.token, "verb": settlement.verb}
                log.warning("lease_lost", extra={"fields": fields})
        return None

    def _claimed(self, claimed: Claimed, shard: int, sent_at: float) -> None:
        if not claimed.more:
            self._state.hinted.discard(shard)
        self._tally.claimed += len(claimed.leases)
        deadline = time.monotonic() + self._delivery.handler_timeout_seconds
        for lease in claimed.leases:
            self._tally.due_to_claimed.observe((claimed.now_ms - lease.task.due_ms) / 1000)
            self._start(Running(lease, sent_at, deadline))
        for lease, error in claimed.unreadable:
            self._state.outbox.waiting.append(_unreadable(lease, error, claimed.now_ms))

    def _start(self, running: Running) -> None:
        self._state.running[running.lease.member] = running
        running.handling = self._loop.create_task(self._run(running))

    async def _run(self, running: Running) -> None:
        state = self._state
        settlement = await self._runner.run(running)
        del state.running[running.lease.member]
        if settlement is not None:
            state.outbox.waiting.append(settlement)
        else:
            self._tally.settled[Settled.LEASE_LOST] += 1
        state.exchange_alarm.ring()
        if state.draining and not state.running:
            state.empty.set()


class Listener:
    """Waits on the wake lists, on a connection of its own, while the worker has nothing to do and a free slot."""

    name = "listener"

    def __init__(self, broker: Broker, hints: Hints, state: State) -> None:
        """Listen on every shard."""
        self._lists = {keys.wake: keys.shard for keys in broker.shards}
        self._hints, self._state = hints, state
        self.alarm = state.listener_alarm

    async def step(self) -> float:
        """Wait for one hint. A worker that is busy or knows of due tasks leaves the hints to others."""
        if self._state.free <= 0 or self._state.hinted:
            return 60.0
        woken = await self._hints.wait(list(self._lists))
        if woken is not None:
            self._state.hint([self._lists[woken]])
        return 0.0


class Watchdog:
    """Extends the leases of running tasks at a third of their length, and ends handlers that run too long."""

    name = "watchdog"

    def __init__(
        self, broker: Broker, connection: AsyncConnection, state: State, spec: Spec, tally: WorkerTally
    ) -> None:
        """Watch the running tasks of `state`."""
        self._broker, self._connection, self._state, self._tally = broker, connection, state, tally
        self._lease_seconds = spec.delivery.lease_seconds
        self.alarm = Alarm()

    async def step(self) -> float:
        """Look at every running task once."""
        now = time.monotonic()
        self._enforce_timeouts(now)
        await self._extend_leases(now)
        return min(1.0, self._lease_seconds / 6)

    def _enforce_timeouts(self, now: float) -> None:
        for running in self._state.running.values():  # in the order they began, which is that of their deadlines
            if running.deadline > now:
                break
            if running.cancelled_for is None:
                self._tally.handler_timeouts += 1
                running.cancel("timeout")

    async def _extend_leases(self, now: float) -> None:
        due: dict[int, list[Running]] = {}
        for running in self._state.running.values():
            # A handler that ignores its cancellation keeps its slot, but not the task.
            if now - running.extended_at >= self._lease_seconds / 3 and running.cancelled_for is None:
                due.setdefault(running.lease.shard, []).append(running)
        if not due:
            return
        batches = list(due.items())
        calls = [
            self._broker.extend(shard, [each.lease.member for each in held], self._lease_seconds * 1000)
            for shard, held in batches
        ]
        for (_, held), lost in zip(batches, await self._connection.run(calls), strict=True):
            self._extended(held, lost, now)

    def _extended(self, held: list[Running], lost: set[int], now: float) -> None:
        self._tally.extended += len(held) - len(lost)
        for at, running in enumerate(held):
            if at not in lost:
                running.extended_at = now
            elif running.lease.member in self._state.running:
                self._tally.leases_lost += 1
                log.warning("lease_lost", extra={"fields": {"id": running.lease.task.id, "verb": "extend"}})
                running.cancel("lease_lost")


def _unreadable(lease: Lease, error: Exception, now_ms: int) -> Settlement:
    fields = {"id": lease.task.id, "error": str(error)}
    if isinstance(error, EnvelopeTooNew):
        log.error("envelope_too_new", extra={"fields": fields})
        return Settlement("release", lease, (now_ms + TOO_NEW_PAUSE_MS,))
    log.error("envelope_unreadable", extra={"fields": fields})
    return Settlement("bury", lease, (f"unreadable: {error}",))

"""The scanner: sleeps until something is due, then wakes one worker. Leads shards, takes expired leases back.

Workers look for themselves when no scanner lives, so all of this makes things quick, none of it makes them right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from delayq.alarm import Alarm
from delayq.connection import AsyncConnection, Hints
from delayq.errors import DelayQError
from delayq.listener import AlarmListener
from delayq.loop import Loop, Service
from delayq.reclaim import Grace, reclaim
from delayq.tally import ProcessTally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.broker import Broker
    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.contract.metrics import Outage
    from delayq.recovery import Recovery
    from delayq.values import Wait

log = logging.getLogger(__name__)

LEAD_SECONDS = 10.0  # how long leadership outlives its scanner
FOLLOW_SECONDS = 1.0  # the longest a scanner that does not lead takes to see that the leader resigned
TICK_SECONDS = LEAD_SECONDS / 3  # the longest sleep: each look that nothing asked for renews leadership, too
OVERDUE_SECONDS = 0.02  # the longest between two looks while due tasks wait for a worker
HANGS_SECONDS = 5.0  # a Redis that leaves a step unanswered for longer does not serve
# Event-loop timers are good to a millisecond or two, so the last stretch before a due time is slept off exactly.
EXACT_SECONDS = 0.0025


class ShardScanner:
    """Watches one shard."""

    blocks = False

    def __init__(
        self,
        shard: int,
        broker: Broker,
        connection: AsyncConnection,
        *,
        listener: AlarmListener,
        owner: str,
        spec: Spec,
        recovery: Recovery | None = None,
    ) -> None:
        """`owner` names this process among all scanners. Without `recovery`, leases that ran out are ours to take."""
        self.name, self.shard, self.leads = f"scan-{shard}", shard, False
        self._listener, self._recovery = listener, recovery
        self._owner, self._broker, self._connection = owner, broker, connection
        self._lease_ms, self._max_crashes = spec.delivery.lease_seconds * 1000, spec.delivery.max_crashes
        self._due_at = self._lead_until = 0.0  # monotonic seconds
        self._untaken = 0  # looks in a row at a hint that nobody took
        self._grace = Grace()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Lead if nobody else does; wake a worker if something is due; return how long to sleep."""
        if time.monotonic() >= self._lead_until:
            others_seconds = await self._lead()
            if not self.leads:
                return min(others_seconds + 0.05, FOLLOW_SECONDS)
        self._sleep_exactly()
        asked_at = time.monotonic()
        wait = await self._connection.one(self._broker.wake(self.shard))
        lapses_in = self._lapses_in(wait, asked_at)
        if lapses_in is not None and lapses_in <= 0:
            await reclaim(self._broker, self._connection, self.shard, max_crashes=self._max_crashes)
            return 0.0
        return self._pause(wait, asked_at, lapses_in)

    def _lapses_in(self, wait: Wait, asked_at: float) -> float | None:
        """Seconds until a lease is to be taken back; None when there is none, or it is the business of `recovery`.

        One that waits for its verdict there, which may take seconds, must not make us look again and again.
        """
        grace = self._grace.left(self._connection.connects, asked_at)
        if self._recovery is not None or wait.next_expiry_seconds is None:
            return None
        return max(wait.next_expiry_seconds, grace)

    async def _lead(self) -> float:
        lead_ms = int(LEAD_SECONDS * 1000)
        answer = await self._connection.one(self._broker.lead(self.shard, self._owner, lead_ms))
        if answer.leads != self.leads:
            await self._leadership_changed(leads=answer.leads)
        self._lead_until = time.monotonic() + LEAD_SECONDS / 3 if answer.leads else 0.0
        if answer.stepped_back_ms:
            await self._rewind(answer.stepped_back_ms)
        return answer.others_ms / 1000

    async def _leadership_changed(self, *, leads: bool) -> None:
        event = "leading" if leads else "leadership_lost"
        log.info(event, extra={"fields": {"shard": self.shard, "owner": self._owner}})
        self.leads = leads
        if self._recovery is not None:
            self._recovery.watch(self.shard, leads=leads)
        await self._listener.listen(self.shard, self.alarm if leads else None)

    async def _rewind(self, stepped_back_ms: int) -> None:
        log.warning("clock_stepped_back", extra={"fields": {"shard": self.shard, "ms": stepped_back_ms}})
        while await self._connection.one(self._broker.rewind(self.shard, self._lease_ms)):
            pass

    def _sleep_exactly(self) -> None:
        left = self._due_at - time.monotonic()
        if 0 < left <= EXACT_SECONDS:
            time.sleep(left)  # blocks the loop for at most EXACT_SECONDS, on purpose

    def _pause(self, wait: Wait, asked_at: float, lapses_in: float | None) -> float:
        """Seconds until there is something to do: a due time, a lease to take back, or just the next tick."""
        pause = min(TICK_SECONDS, max(0.0, self._lead_until - time.monotonic()))
        if lapses_in is not None:
            pause = min(pause, lapses_in + 0.001)
        # While a hint lies untaken, what falls due next could be told to nobody either: look ever more rarely.
        # A claim that leaves nothing due takes the hint away and rings our alarm.
        self._untaken = self._untaken + 1 if wait.due and wait.untaken else 0
        if wait.due:
            pause = min(pause, OVERDUE_SECONDS)
        if self._untaken:
            pause = min(pause, OVERDUE_SECONDS / 8 * 2 ** min(self._untaken, 3))
        elif wait.next_due_seconds is not None:
            # Counted from the question, for the next one takes as long to get to Redis: from the answer on, every
            # wake would be late by a round trip.
            self._due_at = asked_at + wait.next_due_seconds
            pause = min(pause, max(0.0, wait.next_due_seconds - EXACT_SECONDS))
        return pause

    async def resign(self) -> None:
        """Let another scanner lead at once. Told in any case: the answer that made us lead may not have been read."""
        await self._connection.one(self._broker.lead(self.shard, self._owner, 0))


class Scanner:
    """The services of one scanner process."""

    def __init__(
        self, spec: Spec, broker: Broker, address: Address, *, owner: str, recovery: Recovery | None = None
    ) -> None:
        """Nothing is connected before run(). `recovery` is ours to run and to close."""
        self.tally, self._recovery = ProcessTally("scanner", broker.queue), recovery
        self._connection, self._hints = AsyncConnection(address), Hints(address)
        listener = AlarmListener(broker, self._hints)
        self.shards = [
            ShardScanner(
                keys.shard,
                broker,
                self._connection,
                listener=listener,
                owner=owner,
                spec=spec,
                recovery=recovery,
            )
            for keys in broker.shards
        ]
        services: list[Service] = [*self.shards, listener, *([recovery] if recovery else [])]
        self.loops = tuple(Loop(service, self.tally) for service in services)

    @property
    def served(self) -> bool:
        """Whether Redis serves: it did at the last call for every shard, and no call hangs."""
        return not any(self._outages())

    @property
    def outage(self) -> Outage:
        """Why Redis does not serve."""
        return next(self._outages(), "other")

    def _outages(self) -> Iterator[Outage]:
        for loop in self.loops[: len(self.shards)]:
            if loop.stuck_seconds >= HANGS_SECONDS:
                yield "timeout"
            elif not loop.served:
                yield loop.outage

    @property
    def connects(self) -> int:
        """How often it had to connect; after each time it may be another Redis, or one set differently."""
        return self._connection.connects

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Scan until `stop`, then hand leadership over."""
        tasks = [asyncio.create_task(loop.run()) for loop in self.loops]
        try:
            await stop.wait()
        finally:
            for loop in self.loops:
                loop.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._resign()
            if self._recovery is not None:
                await self._recovery.close()
            await asyncio.gather(self._connection.close(), self._hints.close())

    async def _resign(self) -> None:
        try:
            for shard in self.shards:
                await shard.resign()
        except DelayQError as error:
            log.warning("not_resigned", extra={"fields": {"error": str(error), "seconds": LEAD_SECONDS}})

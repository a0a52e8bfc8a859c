"""The scanner: sleeps until something is due, then wakes one worker. Leads shards, takes expired leases back.

Workers look for themselves when no scanner lives, so all of this makes things quick, none of it makes them right.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq.connection import AsyncConnection, Hints
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import UNSTAMPED
from delayq.protocol.write_durability import Acknowledge, longest_seconds
from delayq.recovery.reclaim import Grace, reclaim
from delayq.resharding.coordinator import ANNOUNCE_SECONDS, Reshard, Wish
from delayq.resharding.migrator import Mover
from delayq.resharding.shard_map_sync import Follow
from delayq.scanner.leader_election import Leading
from delayq.service.counters import ProcessTally
from delayq.service.service_manager import Roster
from delayq.worker.wake_listener import AlarmListener

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.contract.metrics import Outage
    from delayq.protocol.commands import Broker
    from delayq.protocol.results import Wait
    from delayq.recovery.recovery import Recovery
    from delayq.resharding.migration import Walk
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import Lane

REST_SECONDS = 60.0  # between looks at a shard that we do not lead; leadership rings
TICK_SECONDS = 5.0  # the longest sleep of a leader: by then it looks though nothing asked for it
HELD_SECONDS = 0.005  # after which the worker that a limit stopped would have come back for the next tasks
OVERDUE_SECONDS = 0.02  # between two looks while due tasks wait and nothing tells why they are not claimed
RARELY_SECONDS = 0.5  # where a look changes nothing: a hint lies there, or as many are in flight as may be
HANGS_SECONDS = 5.0  # a Redis that leaves a step unanswered for longer does not serve
# Event-loop timers are good to a millisecond or two, so the last stretch before a due time is slept off exactly.
EXACT_SECONDS = 0.0025


class ShardScanner:
    """Watches one shard while this scanner leads it."""

    blocks = False

    def __init__(
        self, shard: int, broker: Broker, connection: AsyncConnection, *, spec: Spec, reclaims: bool = True
    ) -> None:
        """Unless it `reclaims`, leases that ran out are somebody else's business."""
        self.name, self.shard, self.leads = f"scan-{shard}", shard, False
        self._broker, self._connection, self._reclaims = broker, connection, reclaims
        self._max_crashes = spec.delivery.max_crashes
        self._due_at = 0.0  # monotonic seconds
        self._untaken = 0  # looks in a row at a hint that nobody took
        self._grace = Grace()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Wake a worker if something is due; return how long to sleep."""
        if not self.leads:
            return REST_SECONDS
        self._sleep_exactly()
        asked_at = time.monotonic()
        wait = await self._connection.one(self._broker.wake(self.shard))
        lapses_in = self._lapses_in(wait, asked_at)
        if lapses_in is not None and lapses_in <= 0:
            await reclaim(
                *(self._broker, self._connection, self.shard),
                max_crashes=self._max_crashes,
                before_ms=wait.now_ms,
            )
            return 0.0
        return self._pause(wait, asked_at, lapses_in)

    def _lapses_in(self, wait: Wait, asked_at: float) -> float | None:
        """Seconds until a lease is to be taken back; None when there is none, or it is not for us to take.

        One that waits for a check's verdict, which may take seconds, must not make us look again and again.
        """
        grace = self._grace.left(self._connection.connects, asked_at)
        if not self._reclaims or wait.next_expiry_seconds is None:
            return None
        return max(wait.next_expiry_seconds, grace)

    def _sleep_exactly(self) -> None:
        left = self._due_at - time.monotonic()
        if 0 < left <= EXACT_SECONDS:
            time.sleep(left)  # blocks the loop for at most EXACT_SECONDS, on purpose

    def _pause(self, wait: Wait, asked_at: float, lapses_in: float | None) -> float:
        """Seconds until there is something to do: a due time, a lease to take back, or just the next tick."""
        pause = min(TICK_SECONDS, self._looks_in(wait))
        if lapses_in is not None:
            pause = min(pause, lapses_in + 0.001)
        if wait.next_due_seconds is None:
            return pause
        if wait.held or self._untaken:
            # It could be told to nobody now, and a moment later that may have changed: not for each of a thousand.
            pause = min(pause, max(OVERDUE_SECONDS, wait.next_due_seconds))
        else:
            # Counted from the question, for the next one takes as long to get to Redis: from the answer on, every
            # wake would be late by a round trip.
            self._due_at = asked_at + wait.next_due_seconds
            pause = min(pause, max(0.0, wait.next_due_seconds - EXACT_SECONDS))
        return pause

    def _looks_in(self, wait: Wait) -> float:
        """Seconds until what is due already is worth another look.

        A hint that nobody took lies there for the first who can, who rings our alarm when he leaves nothing due. Where
        maxInFlight keeps tasks back, whoever ends one claims, or wakes somebody. So nobody waits for us: look ever more
        rarely.
        """
        self._untaken = self._untaken + 1 if wait.due and wait.untaken else 0
        if wait.held:
            return RARELY_SECONDS if wait.room_seconds is None else wait.room_seconds + HELD_SECONDS
        if self._untaken:
            return min(RARELY_SECONDS, OVERDUE_SECONDS / 8 * (1 << min(self._untaken, 10)))
        return OVERDUE_SECONDS if wait.due else TICK_SECONDS


class Post(NamedTuple):
    """What a scanner has for one lane."""

    leading: Leading
    hints: Hints


class Scanner:
    """The services of one scanner process."""

    def __init__(
        self,
        spec: Spec,
        broker: Broker,
        address: Address,
        *,
        owner: str,
        recovery: Recovery | None = None,
        wish: Wish | None = None,
    ) -> None:
        """Nothing is connected before run(). `owner` names this process; `recovery` is ours to run and to close.

        `wish` is what the document asks for; without it, what spec says, of a document that nobody stamped.
        """
        self.tally, self._recovery = ProcessTally("scanner", broker.queue), recovery
        self._spec, self._broker, self._address, self._owner = spec, broker, address, owner
        self._acknowledge = Acknowledge.of(spec.delivery)
        # Tasks that move have a connection of their own: a megabyte of them, or the wait for what has to confirm them,
        # must not make a wake late.
        self._connection = AsyncConnection(address)
        self._moving = AsyncConnection(address.patient(longest_seconds(self._acknowledge)))
        self._posts: dict[Lane, Post] = {}
        self._watches: dict[ShardScanner, Loop] = {}
        self.roster = Roster(self, broker, self.tally, apart=address.apart)
        self._movers: dict[Lane, Mover] = {}
        blocks_seconds = spec.delivery.max_block_milliseconds / 1000
        self._reshard = Reshard(
            *(broker, self._moving),
            wish=wish or Wish(spec.shards, UNSTAMPED),
            acknowledge=self._acknowledge,
            led=self._led,
            announce_seconds=max(ANNOUNCE_SECONDS, 2 * blocks_seconds + 1),
        )
        self.roster.add(self._reshard)
        self.roster.add(Follow(broker, self._moving, once=True))
        self.roster.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""
        return self.roster.loops

    @property
    def shards(self) -> Sequence[ShardScanner]:
        """Those there are now."""
        return tuple(self._watches)

    def opened(self, lane: Lane) -> Iterable[Service]:
        """Have the shards of a lane watched."""
        hints = Hints(self._address)
        listener = AlarmListener(lane, self._broker, hints)
        leading = Leading(
            lane,
            self._connection,
            owner=self._owner,
            spec=self._spec,
            listener=listener,
            led=self._led,
            recovery=self._recovery,
            changed=self._reshard.alarm,
        )
        self._posts[lane] = Post(leading, hints)
        for shard in lane.shards:
            self._watch(lane, shard)
        self._movers[lane] = Mover(lane, self._moving, led=self._led, acknowledge=self._acknowledge)
        yield from (leading, listener, self._movers[lane])
        if self._recovery is not None:
            yield self._recovery.of(lane)

    def _led(self) -> set[int]:
        return {watch.shard for watch in self._watches if watch.leads}

    @property
    def walks(self) -> Mapping[int, Walk]:
        """How far each shard that we lead is with a change of shards; nothing while there is none."""
        return {shard: walk for mover in self._movers.values() for shard, walk in mover.walks.items()}

    def _watch(self, lane: Lane, shard: int) -> None:
        watch = ShardScanner(
            *(shard, self._broker, self._connection), spec=self._spec, reclaims=self._recovery is None
        )
        self._posts[lane].leading.watch(shard, watch)
        self._watches[watch] = self.roster.add(watch, lane, part=True)

    async def changed(self) -> None:
        """Watch the shards that are new, and no more those that are gone."""
        for lane, post in self._posts.items():
            for shard in set(lane.shards) - post.leading.watches.keys():
                self._watch(lane, shard)
            for shard in post.leading.watches.keys() - set(lane.shards):
                await post.leading.forget(shard)
        there = {watch for post in self._posts.values() for watch in post.leading.watches.values()}
        for watch in [watch for watch in self._watches if watch not in there]:
            await self.roster.drop(self._watches.pop(watch))

    async def closed(self, lane: Lane) -> bool:
        """Leave a lane that has no shards any more."""
        del self._movers[lane]
        await self._posts.pop(lane).hints.close()
        return True

    @property
    def down(self) -> Mapping[int, Outage]:
        """The shards that Redis does not serve us with, and why: the last call about one failed, or hangs."""
        found: dict[int, Outage] = {}
        for loop in self.loops:
            service, why = loop.service, _outage(loop)
            if isinstance(service, Leading):
                down = service.refused if why is None else service.watches
                found |= dict.fromkeys(down, why or "denied")
            elif why is None:
                continue
            elif isinstance(service, ShardScanner):
                found.setdefault(service.shard, why)
        return found

    @property
    def connects(self) -> int:
        """How often it had to connect; after each time it may be another Redis, or one set differently."""
        return self._connection.connects

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Scan until `stop`, then hand leadership over."""
        self.roster.start()
        try:
            await stop.wait()
        finally:
            await self.roster.end()
            await asyncio.gather(*(post.leading.resign() for post in self._posts.values()))
            if self._recovery is not None:
                await self._recovery.close()
            hints = (post.hints.close() for post in self._posts.values())
            await asyncio.gather(self._connection.close(), self._moving.close(), *hints)


def _outage(loop: Loop) -> Outage | None:
    """Return why Redis does not serve a loop; None when it does, as far as anybody knows."""
    if loop.stuck_seconds >= HANGS_SECONDS:
        return "timeout"
    return None if loop.served else loop.outage

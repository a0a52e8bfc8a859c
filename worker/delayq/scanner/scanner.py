"""The scanner: sleeps until something is due, then wakes one worker. Leads shards, takes expired leases back.

Workers look for themselves when no scanner lives, so all of this makes things quick, none of it makes them right.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq.connection import AsyncConnection, BlockingReads
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import UNSTAMPED
from delayq.protocol.write_durability import Durability, longest_seconds
from delayq.recovery.reclaim import Grace, reclaim
from delayq.resharding import ANNOUNCE_SECONDS, DesiredShards, Migrator, ReshardingCoordinator, ShardMapSync
from delayq.scanner.leader_election import LeaderElection
from delayq.service.counters import ProcessCounters
from delayq.service.service_manager import ServiceManager
from delayq.worker.wake_listener import AlarmListener

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.contract.metrics import Outage
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Wait
    from delayq.recovery.recovery import Recovery
    from delayq.resharding import ScanProgress
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import ShardGroup

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
        self,
        shard: int,
        commands: Commands,
        connection: AsyncConnection,
        *,
        spec: Spec,
        reclaims: bool = True,
    ) -> None:
        """Unless it `reclaims`, it ignores expired leases."""
        self.name, self.shard, self.leads = f"scan-{shard}", shard, False
        self._commands, self._connection, self._reclaims = commands, connection, reclaims
        self._max_crashes = spec.delivery.max_crashes
        self._due_at = 0.0  # monotonic seconds
        self._untaken = 0  # consecutive looks at a stale wake token
        self._grace = Grace()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Wake a worker if something is due; return how long to sleep."""
        if not self.leads:
            return REST_SECONDS
        self._sleep_exactly()
        asked_at = time.monotonic()
        wait = await self._connection.one(self._commands.wake(self.shard))
        lapses_in = self._lapses_in(wait, asked_at)
        if lapses_in is not None and lapses_in <= 0:
            await reclaim(
                *(self._commands, self._connection, self.shard),
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
            # No worker could act on it now; do not look again for each of a thousand due times.
            pause = min(pause, max(OVERDUE_SECONDS, wait.next_due_seconds))
        else:
            # Counted from the question, for the next one takes as long to get to Redis: from the answer on, every
            # wake would be late by a round trip.
            self._due_at = asked_at + wait.next_due_seconds
            pause = min(pause, max(0.0, wait.next_due_seconds - EXACT_SECONDS))
        return pause

    def _looks_in(self, wait: Wait) -> float:
        """Seconds until what is due already is worth another look.

        A stale wake token stays for the first free worker, which rings our alarm when it leaves nothing due. With tasks
        held back by maxInFlight, the worker that ends one claims again or wakes another. So no worker waits for us:
        look less and less often.
        """
        self._untaken = self._untaken + 1 if wait.due and wait.untaken else 0
        if wait.held:
            return RARELY_SECONDS if wait.room_seconds is None else wait.room_seconds + HELD_SECONDS
        if self._untaken:
            return min(RARELY_SECONDS, OVERDUE_SECONDS / 8 * (1 << min(self._untaken, 10)))
        return OVERDUE_SECONDS if wait.due else TICK_SECONDS


class GroupParts(NamedTuple):
    """What a scanner has for one shard group."""

    leading: LeaderElection
    blocking_reads: BlockingReads


class Scanner:
    """The services of one scanner process."""

    def __init__(
        self,
        spec: Spec,
        commands: Commands,
        address: Address,
        *,
        owner: str,
        recovery: Recovery | None = None,
        wish: DesiredShards | None = None,
    ) -> None:
        """Nothing is connected before run(). `owner` names this process; `recovery` is ours to run and to close.

        `wish` is what the document asks for; without it, what spec says, of a document without a stamp.
        """
        self.counters, self._recovery = ProcessCounters("scanner", commands.queue), recovery
        self._spec, self._commands, self._address, self._owner = spec, commands, address, owner
        self._durability = Durability.of(spec.durability)
        # Tasks that move have a connection of their own: a megabyte of them, or the wait for what has to confirm them,
        # must not make a wake late.
        self._connection = AsyncConnection(address)
        self._moving = AsyncConnection(address.patient(longest_seconds(self._durability)))
        self._posts: dict[ShardGroup, GroupParts] = {}
        self._watches: dict[ShardScanner, Loop] = {}
        self.services = ServiceManager(self, commands, self.counters, apart=address.apart)
        self._movers: dict[ShardGroup, Migrator] = {}
        blocks_seconds = spec.delivery.max_block_milliseconds / 1000
        self._reshard = ReshardingCoordinator(
            *(commands, self._moving),
            wish=wish or DesiredShards(spec.shards, UNSTAMPED),
            durability=self._durability,
            led=self._led,
            announce_seconds=max(ANNOUNCE_SECONDS, 2 * blocks_seconds + 1),
        )
        self.services.add(self._reshard)
        self.services.add(ShardMapSync(commands, self._moving, once=True))
        self.services.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""
        return self.services.loops

    @property
    def shards(self) -> Sequence[ShardScanner]:
        """Those there are now."""
        return tuple(self._watches)

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Have the shards of a shard group watched."""
        blocking_reads = BlockingReads(self._address)
        listener = AlarmListener(group, self._commands, blocking_reads)
        leading = LeaderElection(
            group,
            self._connection,
            owner=self._owner,
            spec=self._spec,
            listener=listener,
            led=self._led,
            recovery=self._recovery,
            changed=self._reshard.alarm,
        )
        self._posts[group] = GroupParts(leading, blocking_reads)
        for shard in group.shards:
            self._watch(group, shard)
        self._movers[group] = Migrator(group, self._moving, led=self._led, durability=self._durability)
        yield from (leading, listener, self._movers[group])
        if self._recovery is not None:
            yield self._recovery.of(group)

    def _led(self) -> set[int]:
        return {watch.shard for watch in self._watches if watch.leads}

    @property
    def scans(self) -> Mapping[int, ScanProgress]:
        """How far each shard that we lead is with a change of shards; nothing while there is none."""
        return {shard: scan for migrator in self._movers.values() for shard, scan in migrator.scans.items()}

    def _watch(self, group: ShardGroup, shard: int) -> None:
        watch = ShardScanner(
            *(shard, self._commands, self._connection), spec=self._spec, reclaims=self._recovery is None
        )
        self._posts[group].leading.watch(shard, watch)
        self._watches[watch] = self.services.add(watch, group, part=True)

    async def changed(self) -> None:
        """Watch the shards that are new, and no more those that are gone."""
        for group, post in self._posts.items():
            for shard in set(group.shards) - post.leading.watches.keys():
                self._watch(group, shard)
            for shard in post.leading.watches.keys() - set(group.shards):
                await post.leading.forget(shard)
        there = {watch for post in self._posts.values() for watch in post.leading.watches.values()}
        for watch in [watch for watch in self._watches if watch not in there]:
            await self.services.drop(self._watches.pop(watch))

    async def closed(self, group: ShardGroup) -> bool:
        """Leave a shard group that has no shards any more."""
        del self._movers[group]
        await self._posts.pop(group).blocking_reads.close()
        return True

    @property
    def down(self) -> Mapping[int, Outage]:
        """The shards that Redis does not serve us with, and why: the last call about one failed, or hangs."""
        found: dict[int, Outage] = {}
        for loop in self.loops:
            service, why = loop.service, _outage(loop)
            if isinstance(service, LeaderElection):
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
        self.services.start()
        try:
            await stop.wait()
        finally:
            await self.services.end()
            await asyncio.gather(*(post.leading.resign() for post in self._posts.values()))
            if self._recovery is not None:
                await self._recovery.close()
            blocking_reads = (post.blocking_reads.close() for post in self._posts.values())
            await asyncio.gather(self._connection.close(), self._moving.close(), *blocking_reads)


def _outage(loop: Loop) -> Outage | None:
    """Return why Redis does not serve a loop; None when it does, as far as anybody knows."""
    if loop.stuck_seconds >= HANGS_SECONDS:
        return "timeout"
    return None if loop.served else loop.outage

"""The scanner: leads shards, wakes one worker when a task falls due, reclaims expired leases, ends late tasks.

Scanners reduce latency only. Without one, workers poll and the reaper reclaims, so correctness does not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.connection import AsyncConnection, BlockingReads
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import UNSTAMPED
from delayq.protocol.write_durability import durability_of, longest_seconds
from delayq.recovery.reclaim import Grace, reclaim
from delayq.resharding import ANNOUNCE_SECONDS, DesiredShards, Migrator, ReshardingCoordinator, ShardMapSync
from delayq.scanner.durability_check import DurabilityCheck
from delayq.scanner.leader_election import Candidate, LeaderElection
from delayq.scanner.schedule_keeper import ScheduleKeeper
from delayq.service.counters import ProcessCounters
from delayq.service.service_manager import ServiceManager
from delayq.worker.wake_listener import AlarmListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delayq.connection import Address
    from delayq.contract import DelayQueue, Spec
    from delayq.errors import Outage
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Wait
    from delayq.recovery.recovery import Recovery
    from delayq.resharding import ScanProgress
    from delayq.scanner.schedule_watch import ScheduleWatch
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

ACCOUNT_DIRECTORY = "DELAYQ_SERVICE_ACCOUNT_DIR"  # has the token with which to watch DelaySchedules
REST_SECONDS = 60.0  # sleep while another scanner leads the shard; becoming leader rings the alarm
TICK_SECONDS = 5.0  # the longest sleep of a leader
HELD_SECONDS = 0.005  # margin for the worker that a rate limit stopped to claim again by itself
OVERDUE_SECONDS = 0.02  # between wakes while due tasks wait for no known reason
RARELY_SECONDS = 0.5  # between wakes while no worker can claim: a stale wake token, or maxInFlight is reached
# The last part of a sleep blocks, because timers of the event loop are up to 2 ms late.
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
        on_look: Callable[[int], None],
    ) -> None:
        """`reclaims`: whether it reclaims expired leases; False if the document names a check.

        `on_look` is called with the shard while the time of a schedule of it has come, and once when it leads it.
        """
        self._on_look = on_look
        self.name, self.shard, self.leads = f"scan-{shard}", shard, False
        self.scheduled = False  # the shard has schedules with further occurrences
        self._looked = False
        self._commands, self._connection, self._reclaims = commands, connection, reclaims
        self._max_crashes = spec.delivery.max_crashes
        self._due_at = 0.0  # monotonic seconds
        self._stale_tokens = 0  # wakes in a row that found a stale wake token
        self._grace = Grace()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Wake a worker if a task is due; returns the seconds to sleep."""
        if not self.leads:
            return REST_SECONDS
        self._sleep_exactly()
        asked_at = time.monotonic()
        wait = await self._connection.one(self._commands.wake(self.shard))
        self.scheduled = wait.look_seconds is not None
        if not self._looked or (wait.look_seconds is not None and wait.look_seconds <= 0):
            self._looked = True
            self._on_look(self.shard)
        lapses_in = self._lapses_in(wait, asked_at)
        if lapses_in is not None and lapses_in <= 0:
            await reclaim(
                *(self._commands, self._connection, self.shard),
                max_crashes=self._max_crashes,
                before_ms=wait.now_ms,
            )
            return 0.0
        if wait.expiry_seconds is not None and wait.expiry_seconds <= 0:
            ended, _ = await self._connection.one(self._commands.expire(self.shard))
            if ended:
                log.info("tasks_expired", extra={"fields": {"shard": self.shard, "tasks": ended}})
            return 0.0
        return self._pause(wait, asked_at, lapses_in)

    def _lapses_in(self, wait: Wait, asked_at: float) -> float | None:
        """Return the seconds until a lease can be reclaimed; None without a lease, or if a check decides.

        An expired lease that waits for a check's verdict must not cause a busy loop.
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
        """Return the seconds until the next due time, expired lease, deadline or tick."""
        pause = min(TICK_SECONDS, self._wakes_in(wait))
        if lapses_in is not None:
            pause = min(pause, lapses_in + 0.001)
        if wait.expiry_seconds is not None:
            pause = min(pause, wait.expiry_seconds + 0.001)
        if wait.look_seconds is not None and wait.look_seconds > 0:
            pause = min(pause, wait.look_seconds + 0.001)
        if wait.next_due_seconds is None:
            return pause
        if wait.held or self._stale_tokens:
            # No worker could claim now: do not wake for each of a thousand due times.
            pause = min(pause, max(OVERDUE_SECONDS, wait.next_due_seconds))
        else:
            # Relative to sending: the next call takes as long to reach Redis. Relative to the reply, every wake would
            # be late by a round trip.
            self._due_at = asked_at + wait.next_due_seconds
            pause = min(pause, max(0.0, wait.next_due_seconds - EXACT_SECONDS))
        return pause

    def _wakes_in(self, wait: Wait) -> float:
        """Return the seconds until the next wake for tasks that are due already.

        A stale wake token remains for the first free worker, which rings our alarm when no due task is left. At
        maxInFlight, the worker that ends a task claims again or wakes another. So no worker needs us: back off.
        """
        self._stale_tokens = self._stale_tokens + 1 if wait.due and wait.untaken else 0
        if wait.held:
            return RARELY_SECONDS if wait.room_seconds is None else wait.room_seconds + HELD_SECONDS
        if self._stale_tokens:
            return min(RARELY_SECONDS, OVERDUE_SECONDS / 8 * (1 << min(self._stale_tokens, 10)))
        return OVERDUE_SECONDS if wait.due else TICK_SECONDS


class GroupParts(NamedTuple):
    """A scanner's objects for one shard group."""

    election: LeaderElection
    blocking_reads: BlockingReads
    keeper: ScheduleKeeper


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
        document: DelayQueue | None = None,
    ) -> None:
        """Connect nothing before run(). `owner` is this process' unique name; the scanner runs and closes `recovery`.

        `wish` is the number of shards that the document requests; by default spec.shards, without a stamp. `document`
        says whether DelaySchedules are accepted, and of which namespace.
        """
        refused = document is not None and document.spec.schedules is None
        self._refuses = document.metadata.namespace if document is not None and refused else None
        self.counters, self._recovery = ProcessCounters("scanner", commands.queue), recovery
        if recovery is not None:
            self.counters.lacks = recovery.lacks
        self._spec, self._commands, self._address = spec, commands, address
        uid = None if document is None else document.metadata.uid
        self._candidate = Candidate(owner, uid or "")
        self._durability = durability_of(spec.durability)
        # Migration has its own connection: large batches and waits for confirmation must not delay a wake.
        self._connection = AsyncConnection(address)
        self._moving = AsyncConnection(address.patient(longest_seconds(self._durability)))
        self._parts: dict[ShardGroup, GroupParts] = {}
        self._watches: dict[ShardScanner, Loop] = {}
        self.services = ServiceManager(self, commands, self.counters, is_cluster=address.is_cluster)
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
        self._schedules = None if document is None or refused else self._watch_schedules(document)
        self._durability_check = self._check_durability() if spec.durability.confirm == "Fsynced" else None
        self.services.open()

    def _check_durability(self) -> DurabilityCheck:
        """Test whether Redis confirms writes. A queue that does not ask for it does not pay for the client."""
        from delayq.client.aio import Client  # noqa: PLC0415

        spec = self._spec
        options: dict[str, Any] = {"key_prefix": spec.redis.key_prefix, "durability": self._durability}
        client = partial(Client, self._address, queue=self._commands.queue, shards=spec.shards, **options)
        found = DurabilityCheck(client, self._connection)
        self.services.add(found)
        return found

    @property
    def unconfirmed(self) -> bool:
        """Whether Redis did not confirm writes as spec.durability asks, when that was last tested."""
        return self._durability_check is not None and bool(self._durability_check.problem)

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops that probes check."""
        return self.services.loops

    @property
    def shards(self) -> Sequence[ShardScanner]:
        """The current shards."""
        return tuple(self._watches)

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Return the services of a new shard group."""
        blocking_reads = BlockingReads(self._address)
        listener = AlarmListener(group, self._commands, blocking_reads)
        election = LeaderElection(
            group,
            self._connection,
            candidate=self._candidate,
            spec=self._spec,
            listener=listener,
            led=self._led,
            recovery=self._recovery,
            changed=self._reshard.alarm,
        )
        keeper = ScheduleKeeper(group, self._connection, self._spec, self._led, refuses=self._refuses)
        self._parts[group] = GroupParts(election, blocking_reads, keeper)
        for shard in group.shards:
            self._watch(group, shard)
        self._movers[group] = Migrator(group, self._moving, led=self._led, durability=self._durability)
        yield from (election, listener, keeper, self._movers[group])
        if self._recovery is not None:
            yield self._recovery.of(group)

    def _led(self) -> set[int]:
        return {watch.shard for watch in self._watches if watch.leads}

    @property
    def others(self) -> frozenset[str]:
        """UIDs of other DelayQueues whose scanners serve the queue."""
        return frozenset().union(*(parts.election.others for parts in self._parts.values()))

    @property
    def scheduled(self) -> set[int]:
        """The shards that we lead and that have schedules with further occurrences."""
        return {watch.shard for watch in self._watches if watch.leads and watch.scheduled}

    @property
    def tended(self) -> int:
        """How often a schedule was tended, which stores occurrences."""
        return sum(parts.keeper.tended for parts in self._parts.values())

    @property
    def scans(self) -> Mapping[int, ScanProgress]:
        """The migration progress of each shard that we lead; empty while no task migrates."""
        return {shard: scan for migrator in self._movers.values() for shard, scan in migrator.scans.items()}

    def _watch(self, group: ShardGroup, shard: int) -> None:
        watch = ShardScanner(
            *(shard, self._commands, self._connection),
            spec=self._spec,
            reclaims=self._recovery is None,
            on_look=self._parts[group].keeper.look,
        )
        self._parts[group].election.watch(shard, watch)
        self._watches[watch] = self.services.add(watch, group, part=True)

    async def changed(self) -> None:
        """Watch new shards, and stop watching removed ones."""
        for group, parts in self._parts.items():
            for shard in set(group.shards) - parts.election.watches.keys():
                self._watch(group, shard)
            for shard in parts.election.watches.keys() - set(group.shards):
                await parts.election.forget(shard)
        there = {watch for parts in self._parts.values() for watch in parts.election.watches.values()}
        for watch in [watch for watch in self._watches if watch not in there]:
            await self.services.drop(self._watches.pop(watch))

    async def closed(self, group: ShardGroup) -> bool:
        """Close a removed shard group."""
        del self._movers[group]
        await self._parts.pop(group).blocking_reads.close()
        return True

    @property
    def down(self) -> Mapping[int, Outage]:
        """The shards that Redis does not serve, and why: the last call failed, or hangs."""
        found: dict[int, Outage] = {}
        for loop in self.loops:
            service, why = loop.service, loop.down
            if isinstance(service, LeaderElection):
                found |= service.refused if why is None else dict.fromkeys(service.watches, why)
            elif why is None:
                continue
            elif isinstance(service, ShardScanner):
                found.setdefault(service.shard, why)
        return found

    def _watch_schedules(self, document: DelayQueue) -> ScheduleWatch | None:
        """Apply DelaySchedules, if the operator gave this process a token. Others do not pay for the libraries."""
        if (directory := os.environ.get(ACCOUNT_DIRECTORY)) is None:
            return None
        from delayq.client.aio import Client  # noqa: PLC0415
        from delayq.kube.api import PodApi  # noqa: PLC0415
        from delayq.scanner.schedule_watch import ScheduleWatch  # noqa: PLC0415

        found = ScheduleWatch(
            document,
            Client.from_document(document, url=self._address),
            commands=self._commands,
            connection=self._connection,
            led=self._led,
            api=PodApi.open(Path(directory)),
        )
        self.services.add(found)
        return found

    @property
    def connects(self) -> int:
        """The number of connects; after each one, server and settings may be different."""
        return self._connection.connects

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Run until `stop`, then resign leadership."""
        self.services.start()
        try:
            await stop.wait()
        finally:
            await self.services.end()
            await asyncio.gather(*(parts.election.resign() for parts in self._parts.values()))
            if self._recovery is not None:
                await self._recovery.close()
            if self._schedules is not None:
                await self._schedules.close()
            blocking_reads = (parts.blocking_reads.close() for parts in self._parts.values())
            await asyncio.gather(self._connection.close(), self._moving.close(), *blocking_reads)

"""A scanner's metrics: the state of Redis, and the counts of the shards that it leads.

Values are read at the scrape, settings at most a minute before. A missing number must not look like zero: there are no
counts of shards that Redis does not serve, and no risks if it serves none. An unresponsive server affects only the
numbers of its own shards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.errors import DelayQError, Outage
from delayq.scanner import durability
from delayq.service import metrics
from delayq.service.shard_groups import groups

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.contract.durability import DurabilitySpec
    from delayq.contract.metrics import DurabilityRisk
    from delayq.protocol.commands import Commands
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.protocol.keys import Keys
    from delayq.protocol.results import Counts, ParkedKind
    from delayq.scanner.durability import ServerInfo
    from delayq.scanner.scanner import Scanner
    from delayq.scanner.upcoming import Upcoming
    from delayq.service.exposition import Family

log = logging.getLogger(__name__)

MOST_SECONDS = 2.0  # deadline of a scrape, so that it can report an outage while Redis hangs
COMPUTING_SECONDS = 0.5  # of it to read schedules of all shards and compute what is not stored of them yet
RISKS_SECONDS = 60.0  # how long settings are cached: operators change them at runtime


@dataclass
class Found:
    """The data of one scrape."""

    down: dict[int, Outage]  # shards that Redis does not serve
    counts: dict[int, Counts] = field(default_factory=dict)
    parked: list[ParkedKind] = field(default_factory=list)
    due_kinds: dict[int, dict[str, float]] = field(default_factory=dict)  # by shard and kind
    servers: list[ServerInfo] = field(default_factory=list)
    offsets: list[float] = field(default_factory=list)  # of each server's clock, seconds

    def risks(self, asked: DurabilitySpec) -> set[DurabilityRisk] | None:
        """Return the risks of all servers together; None when no server has replied."""
        return (
            {risk for server in self.servers for risk in durability.risks(server, asked)}
            if self.servers
            else None
        )

    @property
    def replicas(self) -> int | None:
        """The smallest number of any server."""
        return min((server.replicas for server in self.servers if server.facts), default=None)

    @property
    def clock_offset_seconds(self) -> float | None:
        """The largest offset of any server."""
        return max(self.offsets, key=abs, default=None)


class Exporter:
    """Serves one scanner's scrapes, on its own connection: a long reply must not delay a wake."""

    def __init__(self, scanner: Scanner, commands: Commands, connection: AsyncConnection, spec: Spec) -> None:
        """Send nothing before the first scrape."""
        self._scanner, self._commands, self._connection = scanner, commands, connection
        self._asked = spec.durability
        self._upcoming: Upcoming | None = None
        self._looks_ahead = True
        self._infos: dict[str, ServerInfo] = {}  # by server
        self._where: dict[int, str] = {}  # the last known server of each shard
        self._read_at, self._connects = 0.0, 0  # of the cache: monotonic seconds, the scanner's connects

    async def families(self, horizons: DueHistogram) -> Iterable[Family]:
        """Return all metrics of a scanner."""
        led = {each.shard: each.leads for each in self._scanner.shards}
        found = await self._found({shard for shard, leads in led.items() if leads}, horizons)
        queue, serves = self._commands.queue, len(found.down) < len(self._commands.shards)
        down = {shard: (why, self._where.get(shard, "")) for shard, why in found.down.items()}
        return [
            *metrics.queue_families(
                queue, led, found.counts, horizons, parked=found.parked, due_kinds=found.due_kinds
            ),
            *metrics.shard_families(queue, self._commands.shard_map, down, self._progress()),
            *metrics.backend_families(
                queue,
                self._risks(found) if serves else None,
                next(iter(found.down.values()), "other"),
                replicas=found.replicas if serves else None,
                clock_offset_seconds=found.clock_offset_seconds if serves else None,
            ),
            metrics.conflicts(queue, self._scanner.others),
            *metrics.process_families(self._scanner.counters),
        ]

    def _risks(self, found: Found) -> set[DurabilityRisk] | None:
        risks = found.risks(self._asked)
        return risks if risks is None or not self._scanner.unconfirmed else risks | {"fsync_unconfirmed"}

    def _progress(self) -> dict[int, tuple[int, int, int, int]]:
        return {
            shard: (scan.tasks, scan.checked, scan.moved, len(scan.waiting) + len(scan.look_at))
            for shard, scan in self._scanner.scans.items()
        }

    async def _found(self, led: Collection[int], horizons: DueHistogram) -> Found:
        """Read all shards that are not known to be down, all shard groups concurrently."""
        found = Found(dict(self._scanner.down))
        there = [keys for keys in self._commands.shards if keys.shard not in found.down]
        if there:
            deadline = asyncio.get_running_loop().time() + MOST_SECONDS
            stop_at = time.monotonic() + COMPUTING_SECONDS
            served = (
                [shard for shard in group.shards if shard in led and shard not in found.down]
                for group in groups(self._commands, is_cluster=self._connection.address.is_cluster)
            )
            await asyncio.gather(
                self._servers(there, deadline, found),
                *(
                    self._tried(shards, deadline, found, self._counts(shards, horizons, found, stop_at))
                    for shards in served
                    if shards
                ),
            )
        for shard in found.down.keys() & found.counts.keys():
            del found.counts[shard]
        return found

    async def _tried(
        self, shards: Iterable[int], deadline: float, found: Found, reading: Coroutine[Any, Any, None]
    ) -> None:
        """Await the read; on an error or a timeout, these shards are down."""
        try:
            async with asyncio.timeout_at(deadline):
                await reading
        except (DelayQError, TimeoutError) as error:
            found.down |= dict.fromkeys(shards, _outage(error))
            why = str(error) or f"no answer within {MOST_SECONDS:g} s"
            log.warning("counts_unavailable", extra={"fields": {"error": why}})

    async def _counts(
        self, shards: Collection[int], horizons: DueHistogram, found: Found, stop_at: float
    ) -> None:
        asked = list(horizons.ms.values())
        calls = [self._commands.counts(shard, asked) for shard in shards]
        found.counts |= zip(shards, await self._connection.run(calls), strict=True)
        scheduled = self._scanner.scheduled.intersection(shards)
        upcoming = self._opened_upcoming() if scheduled else None
        if upcoming is not None:
            for shard in upcoming.longest_ago(scheduled):
                found.counts[shard] = await upcoming.added(shard, found.counts[shard], stop_at)
        with_parked = [shard for shard in shards if found.counts[shard].parked]
        if with_parked:
            kinds = await self._connection.answers([self._commands.parked(shard) for shard in with_parked])
            # A user without the right to ZLEXCOUNT, which is new, has all other metrics.
            found.parked += [kind for each in kinds if not isinstance(each, Exception) for kind in each]
        if horizons.kinds_ms:
            mixes = await self._connection.answers(
                [self._commands.due_kinds(shard, horizons.kinds_ms) for shard in shards]
            )
            found.due_kinds |= {
                shard: mix for shard, mix in zip(shards, mixes, strict=True) if not isinstance(mix, Exception)
            }

    def _opened_upcoming(self) -> Upcoming | None:
        """Return what computes them. A queue without schedules does not pay for the libraries."""
        if self._upcoming is None and self._looks_ahead:
            try:
                from delayq.scanner.upcoming import Upcoming  # noqa: PLC0415
            except ModuleNotFoundError as error:  # an image of users, for a recovery check
                self._looks_ahead = False
                hint = "install delayq[worker] into the image"
                log.warning("occurrences_not_counted", extra={"fields": {"error": str(error), "hint": hint}})
                return None
            self._upcoming = Upcoming(self._commands, self._connection, lambda: self._scanner.tended)
        return self._upcoming

    async def _servers(self, there: Collection[Keys], deadline: float, found: Found) -> None:
        """Read the settings and clock of every server that holds a shard of the queue."""
        connects = self._scanner.connects
        if time.monotonic() - self._read_at > RISKS_SECONDS or connects != self._connects:
            self._infos.clear()
            self._read_at, self._connects = time.monotonic(), connects
        held: dict[str, list[Keys]] = {}
        await self._tried([keys.shard for keys in there], deadline, found, self._holders(there, held))
        await asyncio.gather(
            *(
                self._tried(
                    [keys.shard for keys in shards], deadline, found, self._server(where, shards[0], found)
                )
                for where, shards in held.items()
            )
        )

    async def _holders(self, there: Collection[Keys], held: dict[str, list[Keys]]) -> None:
        for where, shards in await self._connection.servers(self._commands.shards):
            self._where |= {keys.shard: where for keys in shards}
            if served := [keys for keys in shards if keys in there]:
                held[where] = served

    async def _server(self, where: str, keys: Keys, found: Found) -> None:
        """Read a server's settings, unless cached, and then its clock.

        The clock is read last, on an open connection, because connecting would distort the round trip.
        """
        if where not in self._infos:
            self._infos[where] = durability.server_info(
                await self._connection.send(durability.QUESTIONS, keys)
            )
        before = time.time()
        [reply] = await self._connection.send((("TIME",),), keys)
        offset = durability.clock_offset_seconds(reply, before, time.time())
        found.servers.append(self._infos[where])
        found.offsets += [] if offset is None else [offset]


def _outage(error: Exception) -> Outage:
    """Return why Redis did not serve a scrape."""
    return error.outage if isinstance(error, DelayQError) else "timeout"

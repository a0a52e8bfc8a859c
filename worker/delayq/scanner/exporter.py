"""What a scanner answers to a scrape: how its Redis does, and the counts of the shards it leads.

All of it is read at the scrape, or a minute before at most. A missing number must not look like zero: of shards that
Redis does not serve there are no counts, and no risks where it serves none. A server that does not answer costs what it
holds, and nothing of the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.errors import DelayQError, Unavailable
from delayq.scanner import durability
from delayq.service import metrics
from delayq.service.shard_groups import groups

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.contract.durability import DurabilitySpec
    from delayq.contract.metrics import DurabilityRisk, Outage
    from delayq.protocol.commands import Commands
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.protocol.keys import Keys
    from delayq.protocol.results import Counts
    from delayq.scanner.durability import ServerInfo
    from delayq.scanner.scanner import Scanner
    from delayq.service.exposition import Family

log = logging.getLogger(__name__)

MOST_SECONDS = 2.0  # a scrape ends even while Redis hangs: without an answer, the reason would be unknown
RISKS_SECONDS = 60.0  # how long risks are believed: settings change by hand


@dataclass
class Found:
    """What one scrape learnt."""

    down: dict[int, Outage]  # shards that Redis does not serve us with
    counts: dict[int, Counts] = field(default_factory=dict)
    servers: list[ServerInfo] = field(default_factory=list)
    offsets: list[float] = field(default_factory=list)  # of each server's clock, seconds

    def risks(self, asked: DurabilitySpec) -> set[DurabilityRisk] | None:
        """Return those of any server: each holds tasks that may be lost; None when no server was heard."""
        return (
            {risk for server in self.servers for risk in durability.risks(server, asked)}
            if self.servers
            else None
        )

    @property
    def replicas(self) -> int | None:
        """Of the server that has fewest."""
        return min((server.replicas for server in self.servers if server.facts), default=None)

    @property
    def clock_offset_seconds(self) -> float | None:
        """Of the clock that is off by most."""
        return max(self.offsets, key=abs, default=None)


class Exporter:
    """Answers scrapes of one scanner, on a connection of its own: a long answer must not make a wake late."""

    def __init__(self, scanner: Scanner, commands: Commands, connection: AsyncConnection, spec: Spec) -> None:
        """Ask nothing before the first scrape."""
        self._scanner, self._commands, self._connection = scanner, commands, connection
        self._asked = spec.durability
        self._infos: dict[str, ServerInfo] = {}  # by server
        self._where: dict[int, str] = {}  # the server that holds a shard, as far as was heard
        self._read_at, self._connects = 0.0, 0  # monotonic seconds, and the scanner's connections then

    async def families(self, horizons: DueHistogram) -> Iterable[Family]:
        """Return everything a scanner exports."""
        led = {each.shard: each.leads for each in self._scanner.shards}
        found = await self._found({shard for shard, leads in led.items() if leads}, horizons)
        queue, serves = self._commands.queue, len(found.down) < len(self._commands.shards)
        down = {shard: (why, self._where.get(shard, "")) for shard, why in found.down.items()}
        return [
            *metrics.queue_families(queue, led, found.counts, horizons),
            *metrics.shard_families(queue, self._commands.shard_map, down, self._progress()),
            *metrics.backend_families(
                queue,
                found.risks(self._asked) if serves else None,
                next(iter(found.down.values()), "other"),
                replicas=found.replicas if serves else None,
                clock_offset_seconds=found.clock_offset_seconds if serves else None,
            ),
            *metrics.process_families(self._scanner.counters),
        ]

    def _progress(self) -> dict[int, tuple[int, int, int, int]]:
        return {
            shard: (scan.tasks, scan.checked, scan.moved, len(scan.waiting) + len(scan.look_at))
            for shard, scan in self._scanner.scans.items()
        }

    async def _found(self, led: Collection[int], horizons: DueHistogram) -> Found:
        """Ask about all shards that are served as far as the scanner knows, all shard groups at once."""
        found = Found(dict(self._scanner.down))
        there = [keys for keys in self._commands.shards if keys.shard not in found.down]
        if there:
            deadline = asyncio.get_running_loop().time() + MOST_SECONDS
            served = (
                [shard for shard in group.shards if shard in led and shard not in found.down]
                for group in groups(self._commands, apart=self._connection.address.apart)
            )
            await asyncio.gather(
                self._servers(there, deadline, found),
                *(
                    self._tried(shards, deadline, found, self._counts(shards, horizons, found))
                    for shards in served
                    if shards
                ),
            )
        for shard in found.down.keys() & found.counts.keys():
            del found.counts[shard]
        return found

    async def _tried(
        self, shards: Iterable[int], deadline: float, found: Found, asked: Coroutine[Any, Any, None]
    ) -> None:
        """Ask; without an answer in time, these shards are down."""
        try:
            async with asyncio.timeout_at(deadline):
                await asked
        except (DelayQError, TimeoutError) as error:
            found.down |= dict.fromkeys(shards, _outage(error))
            why = str(error) or f"no answer within {MOST_SECONDS:g} s"
            log.warning("counts_unavailable", extra={"fields": {"error": why}})

    async def _counts(self, shards: Collection[int], horizons: DueHistogram, found: Found) -> None:
        asked = list(horizons.ms.values())
        calls = [self._commands.counts(shard, asked) for shard in shards]
        found.counts |= zip(shards, await self._connection.run(calls), strict=True)

    async def _servers(self, there: Collection[Keys], deadline: float, found: Found) -> None:
        """Ask every server that holds a shard of the queue about its durability."""
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
        """Read its settings, again after a minute and whenever the scanner had to connect again; and both clocks.

        The clocks on a connection that is open already: Redis' stands for the middle of the round trip.
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
    """Why a scrape was not answered by Redis."""
    if isinstance(error, Unavailable):
        return error.outage
    return "denied" if isinstance(error, DelayQError) else "timeout"

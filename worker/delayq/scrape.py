"""What a scanner answers to a scrape: how its Redis does, and the counts of the shards it leads.

All of it is read at the scrape, or a minute before at most. A missing number must not look like zero: while Redis does
not serve, there are no counts and no risks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from delayq import durability, metrics
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.broker import Broker
    from delayq.connection import AsyncConnection
    from delayq.contract.metrics import DurabilityRisk, Outage
    from delayq.horizons import Horizons
    from delayq.scanner import Scanner
    from delayq.values import Counts

log = logging.getLogger(__name__)

MOST_SECONDS = 2.0  # a scrape ends even while Redis hangs: a missing answer would tell nobody why
RISKS_SECONDS = 60.0  # how long risks are believed: settings change by hand


class Scrape:
    """Answers scrapes of one scanner, on a connection of its own: a long answer must not make a wake late."""

    def __init__(self, scanner: Scanner, broker: Broker, connection: AsyncConnection) -> None:
        """Ask nothing before the first scrape."""
        self._scanner, self._broker, self._connection = scanner, broker, connection
        self._risks: frozenset[DurabilityRisk] | None = None
        self._outage: Outage = "other"
        self._read_at, self._connects = 0.0, 0  # monotonic seconds, and the scanner's connection then

    async def families(self, horizons: Horizons) -> Iterable[metrics.Family]:
        """Return everything a scanner exports."""
        led = {each.shard: each.leads for each in self._scanner.shards}
        counts, risks = await self._asked([shard for shard, leads in led.items() if leads], horizons)
        queue = self._broker.queue
        return [
            *metrics.queue_families(queue, led, counts, horizons),
            *metrics.backend_families(queue, risks, self._outage),
            *metrics.process_families(self._scanner.tally),
        ]

    async def _asked(
        self, shards: Sequence[int], horizons: Horizons
    ) -> tuple[dict[int, Counts], frozenset[DurabilityRisk] | None]:
        if not self._scanner.served:
            self._outage = self._scanner.outage
            return {}, None
        try:
            async with asyncio.timeout(MOST_SECONDS):
                return await self._counts(shards, horizons), await self._durability()
        except (DelayQError, TimeoutError) as error:
            why = str(error) or f"no answer within {MOST_SECONDS:g} s"
            log.warning("counts_unavailable", extra={"fields": {"error": why}})
            self._outage = _outage(error)
            return {}, None

    async def _counts(self, shards: Sequence[int], horizons: Horizons) -> dict[int, Counts]:
        if not shards:
            return {}
        asked = list(horizons.ms.values())
        calls = [self._broker.counts(shard, asked) for shard in shards]
        return dict(zip(shards, await self._connection.run(calls), strict=True))

    async def _durability(self) -> frozenset[DurabilityRisk]:
        """Read again after a minute, and whenever the scanner had to connect again."""
        connects = self._scanner.connects
        old = time.monotonic() - self._read_at > RISKS_SECONDS or connects != self._connects
        if self._risks is None or old:
            info, appendfsync = await self._connection.send(durability.QUESTIONS)
            self._risks = durability.risks(durability.info(info), durability.setting(appendfsync))
            self._read_at, self._connects = time.monotonic(), connects
        return self._risks


def _outage(error: Exception) -> Outage:
    """Why a scrape was not answered by Redis."""
    if isinstance(error, Unavailable):
        return error.outage
    return "denied" if isinstance(error, DelayQError) else "timeout"

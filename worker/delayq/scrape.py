"""What a scanner answers to a scrape: how its Redis does, and the counts of the shards it leads.

All of it is read at the scrape, or a minute before at most. A missing number must not look like zero: while Redis does
not serve, there are no counts and no risks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq import durability, metrics
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.broker import Broker
    from delayq.connection import AsyncConnection
    from delayq.contract import Delivery
    from delayq.contract.metrics import Outage
    from delayq.durability import Told
    from delayq.horizons import Horizons
    from delayq.scanner import Scanner
    from delayq.values import Counts

log = logging.getLogger(__name__)

MOST_SECONDS = 2.0  # a scrape ends even while Redis hangs: a missing answer would tell nobody why
RISKS_SECONDS = 60.0  # how long risks are believed: settings change by hand


class Found(NamedTuple):
    """What one scrape learnt from Redis."""

    counts: dict[int, Counts]
    told: Told | None
    clock_offset_seconds: float | None


class Scrape:
    """Answers scrapes of one scanner, on a connection of its own: a long answer must not make a wake late."""

    def __init__(
        self, scanner: Scanner, broker: Broker, connection: AsyncConnection, delivery: Delivery
    ) -> None:
        """Ask nothing before the first scrape. `delivery` is spec.delivery."""
        self._scanner, self._broker, self._connection = scanner, broker, connection
        self._delivery = delivery
        self._told: Told | None = None
        self._outage: Outage = "other"
        self._read_at, self._connects = 0.0, 0  # monotonic seconds, and the scanner's connection then

    async def families(self, horizons: Horizons) -> Iterable[metrics.Family]:
        """Return everything a scanner exports."""
        led = {each.shard: each.leads for each in self._scanner.shards}
        shards = [shard for shard, leads in led.items() if leads]
        found = await self._asked(shards, horizons) or Found({}, None, None)
        queue, told = self._broker.queue, found.told
        return [
            *metrics.queue_families(queue, led, found.counts, horizons),
            *metrics.backend_families(
                queue,
                None if told is None else durability.risks(told, self._delivery),
                self._outage,
                replicas=told.replicas if told and told.facts else None,
                clock_offset_seconds=found.clock_offset_seconds,
            ),
            *metrics.process_families(self._scanner.tally),
        ]

    async def _asked(self, shards: Sequence[int], horizons: Horizons) -> Found | None:
        if not self._scanner.served:
            self._outage = self._scanner.outage
            return None
        try:
            async with asyncio.timeout(MOST_SECONDS):
                counts, told = await self._counts(shards, horizons), await self._durability()
                return Found(counts, told, await self._clock_offset_seconds())
        except (DelayQError, TimeoutError) as error:
            why = str(error) or f"no answer within {MOST_SECONDS:g} s"
            log.warning("counts_unavailable", extra={"fields": {"error": why}})
            self._outage = _outage(error)
            return None

    async def _counts(self, shards: Sequence[int], horizons: Horizons) -> dict[int, Counts]:
        if not shards:
            return {}
        asked = list(horizons.ms.values())
        calls = [self._broker.counts(shard, asked) for shard in shards]
        return dict(zip(shards, await self._connection.run(calls), strict=True))

    async def _durability(self) -> Told:
        """Read again after a minute, and whenever the scanner had to connect again."""
        connects = self._scanner.connects
        old = time.monotonic() - self._read_at > RISKS_SECONDS or connects != self._connects
        if self._told is None or old:
            self._told = durability.told(await self._connection.send(durability.QUESTIONS))
            self._read_at, self._connects = time.monotonic(), connects
        return self._told

    async def _clock_offset_seconds(self) -> float | None:
        """Read both clocks, on a connection that is open already: Redis' stands for the middle of the round trip."""
        before = time.time()
        [reply] = await self._connection.send((("TIME",),))
        return durability.clock_offset_seconds(reply, before, time.time())


def _outage(error: Exception) -> Outage:
    """Why a scrape was not answered by Redis."""
    if isinstance(error, Unavailable):
        return error.outage
    return "denied" if isinstance(error, DelayQError) else "timeout"

"""Leader election: every second or two a scanner registers in Redis, and reads which shards it leads.

Redis divides the shards among the registered scanners in the order of their names: a few seconds after a scanner starts
or dies, their numbers of shards differ by at most one. Not here: what a leader does.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, NamedTuple

from delayq.errors import DelayQError, Outage, Unavailable, UnsupportedFormat
from delayq.protocol.alarm import Alarm
from delayq.recovery.reclaim import clamp_leases
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.protocol.results import Leadership
    from delayq.recovery.recovery import Recovery
    from delayq.scanner.scanner import ShardScanner
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.wake_listener import AlarmListener

log = logging.getLogger(__name__)

LEAD_SECONDS = 4.2  # lease of a leader: shorter than the five seconds within which shards are balanced again
# The longest pause between renewals; the lease survives an outage of Redis as long as this.
RENEW_SECONDS = 2.0
FOLLOW_SECONDS = 1.0  # the same while this scanner leads nothing, so that it replaces a leader that resigns
EXPIRED_SECONDS = 0.05  # margin after the expiry of a leader or scanner


class Candidate(NamedTuple):
    """Who takes part."""

    owner: str
    """This process' unique name, without spaces."""
    uid: str
    """Of its DelayQueue; empty without one."""


class LeaderElection:
    """Takes part in the leader election of the shards of one shard group."""

    blocks = False

    def __init__(
        self,
        group: ShardGroup,
        connection: AsyncConnection,
        *,
        candidate: Candidate,
        spec: Spec,
        listener: AlarmListener,
        led: Callable[[], Collection[int]],
        recovery: Recovery | None,
        changed: Alarm,
    ) -> None:
        """Connect nothing before the first step.

        `led` returns the shards that this process leads, in all shard groups; `changed` rings when they change.
        """
        self.name = group.named("leader_election")
        self.watches: dict[int, ShardScanner] = {}  # by shard
        self._commands, self._connection, self._candidate = group.commands, connection, candidate
        self.others: frozenset[str] = frozenset()
        """UIDs of other DelayQueues whose scanners serve the queue, as of the last election."""
        self._listener, self._led, self._recovery, self._rings = listener, led, recovery, changed
        self._lease_ms = spec.delivery.lease_duration_seconds * 1000
        self._refusals = PerShard(self.name)
        self._to_clamp = set[int]()  # shards whose clock stepped back, and whose leases may be too long
        self.alarm = Alarm()

    async def step(self) -> float:
        """Take part in the election of every shard; returns the seconds until the next one."""
        found = await self._elect(int(LEAD_SECONDS * 1000))
        answers = {shard: answer for shard, answer in found.items() if not isinstance(answer, DelayQError)}
        self.others = frozenset(uid for answer in answers.values() for uid in answer.others)
        others = {shard: False for shard, answer in found.items() if isinstance(answer, UnsupportedFormat)}
        await self._changed({shard: answer.leads for shard, answer in answers.items()} | others)
        for shard, answer in answers.items():
            if answer.stepped_back_ms:
                self._to_clamp.add(shard)
        self._note(found | await self._clamp())
        longest = RENEW_SECONDS if self._led() else FOLLOW_SECONDS
        spread = longest * random.uniform(0.9, 1.0)  # noqa: S311 -- spreads load
        return min([spread, *(answer.again_ms / 1000 + EXPIRED_SECONDS for answer in answers.values())])

    @property
    def refused(self) -> dict[int, Outage]:
        """Shards whose election fails while others succeed, and why."""
        return {shard: cause for shard, (_, cause) in self._refusals.refused.items()}

    def _note(self, found: Mapping[int, Leadership | DelayQError]) -> None:
        """Raise an outage, or an error of all shards; log errors of single shards."""
        errors = {shard: answer for shard, answer in found.items() if isinstance(answer, DelayQError)}
        for error in errors.values():
            if isinstance(error, Unavailable) or len(errors) == len(found):
                raise error
        for shard in found:
            if shard in errors:
                self._refusals.refuse(shard, errors[shard])
            else:
                self._refusals.serve(shard)

    async def _elect(self, lease_ms: int) -> dict[int, Leadership | DelayQError]:
        shards = list(self.watches)
        calls = [self._commands.elect(shard, *self._candidate, lease_ms) for shard in shards]
        return dict(zip(shards, await self._connection.answers(calls) if calls else [], strict=True))

    async def _changed(self, leads: Mapping[int, bool]) -> None:
        alarms: dict[int, Alarm | None] = {}
        for shard, ours in leads.items():
            watch = self.watches.get(shard)
            if watch is None or watch.leads == ours:
                continue
            event = "leadership_acquired" if ours else "leadership_lost"
            log.info(event, extra={"fields": {"shard": shard, "owner": self._candidate.owner}})
            watch.leads, alarms[shard] = ours, watch.alarm if ours else None
            watch.alarm.ring()
            if self._recovery is not None:
                self._recovery.watch(shard, leads=ours)
        if alarms:
            self._rings.ring()
            await self._listener.listen(alarms)

    async def _clamp(self) -> dict[int, DelayQError]:
        """Shorten leases that are too long after a step back of the clock; returns errors, to be tried again."""
        refused = dict[int, DelayQError]()
        for shard in list(self._to_clamp):
            try:
                await clamp_leases(self._commands, self._connection, shard, lease_ms=self._lease_ms)
            except DelayQError as error:
                refused[shard] = error
            else:
                self._to_clamp.discard(shard)
        return refused

    def watch(self, shard: int, watch: ShardScanner) -> None:
        """Take part in the election of a shard; `watch` runs while we lead it."""
        self.watches[shard] = watch
        self.alarm.ring()

    async def forget(self, shard: int) -> None:
        """Stop watching a removed shard."""
        await self._changed({shard: False})
        del self.watches[shard]
        self._to_clamp.discard(shard)
        self._refusals.serve(shard)

    async def resign(self) -> None:
        """Give up all leadership, even where we do not lead: a reply that made us leader may have been lost."""
        try:
            for error in (await self._elect(0)).values():
                if isinstance(error, DelayQError):
                    raise error
        except DelayQError as error:
            fields = {"error": str(error), "seconds": LEAD_SECONDS}
            log.warning("leadership_not_released", extra={"fields": fields})

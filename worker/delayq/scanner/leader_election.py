"""Who leads which shard: every second or two a scanner says that it is there, and hears which shards it leads.

The scanners of a shard are counted in Redis, and their number and the order of their names say whose turn it is: a few
seconds after one of them came or died, each leads as many shards as any other, give or take one. Not here: what a
leader does.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Protocol

from delayq.errors import DelayQError, Unavailable
from delayq.protocol.alarm import Alarm
from delayq.recovery.reclaim import rewind
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.protocol.results import Leadership
    from delayq.recovery.recovery import Recovery
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.wake_listener import AlarmListener

log = logging.getLogger(__name__)

# How long leadership outlives its scanner: less than the five seconds within which shards are spread evenly again.
LEAD_SECONDS = 4.2
RENEW_SECONDS = 2.0  # the longest between two looks; Redis may hang for as long without changing anything
FOLLOW_SECONDS = (
    1.0  # the same while this scanner leads nothing: it is who takes over at once when another resigns
)
EXPIRED_SECONDS = 0.05  # after a leadership expires, or a scanner counts as gone, to be certain


class Watch(Protocol):
    """Who watches a shard while this scanner leads it."""

    leads: bool
    alarm: Alarm


class LeaderElection:
    """Takes part in the leader election of the shards of one shard group."""

    blocks = False

    def __init__(
        self,
        group: ShardGroup,
        connection: AsyncConnection,
        *,
        owner: str,
        spec: Spec,
        listener: AlarmListener,
        led: Callable[[], Collection[int]],
        recovery: Recovery | None = None,
        changed: Alarm | None = None,
    ) -> None:
        """`owner` names this process among all scanners, without spaces.

        `led` are the shards that we lead, of whatever shard group; `changed` rings when these are others.
        """
        self.name, self.watches = group.named("leader_election"), dict[int, Watch]()  # by shard
        self._commands, self._connection, self._owner = group.commands, connection, owner
        self._listener, self._led, self._recovery, self._rings = listener, led, recovery, changed
        self._lease_ms = spec.delivery.lease_duration_seconds * 1000
        self._apart = PerShard(self.name)
        self._rewinds = set[int]()  # shards whose clock stepped back, and whose leases may be too long still
        self.alarm = Alarm()

    async def step(self) -> float:
        """Ask for every shard whether we lead; returns the seconds until that is worth asking again."""
        found = await self._asked(int(LEAD_SECONDS * 1000))
        answers = {shard: answer for shard, answer in found.items() if not isinstance(answer, DelayQError)}
        await self._changed({shard: answer.leads for shard, answer in answers.items()})
        for shard, answer in answers.items():
            if answer.stepped_back_ms:
                self._rewinds.add(shard)
        self._note(found | await self._rewound())
        longest = RENEW_SECONDS if self._led() else FOLLOW_SECONDS
        spread = longest * random.uniform(0.9, 1.0)  # noqa: S311 -- spreads load
        return min([spread, *(answer.again_ms / 1000 + EXPIRED_SECONDS for answer in answers.values())])

    @property
    def refused(self) -> Collection[int]:
        """Shards that refuse to be led, though others do not."""
        return self._apart.refused

    def _note(self, found: Mapping[int, Leadership | DelayQError]) -> None:
        """Raise what is wrong with all shards, or with their server; what is wrong with some is logged."""
        errors = {shard: answer for shard, answer in found.items() if isinstance(answer, DelayQError)}
        for error in errors.values():
            if isinstance(error, Unavailable) or len(errors) == len(found):
                raise error
        for shard in found:
            if shard in errors:
                self._apart.refuse(shard, errors[shard])
            else:
                self._apart.serve(shard)

    async def _asked(self, lease_ms: int) -> dict[int, Leadership | DelayQError]:
        shards = list(self.watches)
        calls = [self._commands.elect(shard, self._owner, lease_ms) for shard in shards]
        return dict(zip(shards, await self._connection.answers(calls) if calls else [], strict=True))

    async def _changed(self, leads: Mapping[int, bool]) -> None:
        alarms: dict[int, Alarm | None] = {}
        for shard, ours in leads.items():
            watch = self.watches.get(shard)
            if watch is None or watch.leads == ours:
                continue
            event = "leadership_acquired" if ours else "leadership_lost"
            log.info(event, extra={"fields": {"shard": shard, "owner": self._owner}})
            watch.leads, alarms[shard] = ours, watch.alarm if ours else None
            watch.alarm.ring()
            if self._recovery is not None:
                self._recovery.watch(shard, leads=ours)
        if alarms and self._rings is not None:
            self._rings.ring()
        if alarms:
            await self._listener.listen(alarms)

    async def _rewound(self) -> dict[int, DelayQError]:
        """Shorten leases that are too long by now; returns the shards that refused, which are tried again."""
        refused = dict[int, DelayQError]()
        for shard in list(self._rewinds):
            try:
                await rewind(self._commands, self._connection, shard, lease_ms=self._lease_ms)
            except DelayQError as error:
                refused[shard] = error
            else:
                self._rewinds.discard(shard)
        return refused

    def watch(self, shard: int, watch: Watch) -> None:
        """Have a shard watched once we lead it."""
        self.watches[shard] = watch
        self.alarm.ring()

    async def forget(self, shard: int) -> None:
        """Leave a shard that is no more."""
        await self._changed({shard: False})
        del self.watches[shard]
        self._rewinds.discard(shard)
        self._apart.serve(shard)

    async def resign(self) -> None:
        """Let others lead at once. Told in any case: the answer that made us lead may not have been read."""
        try:
            for error in (await self._asked(0)).values():
                if isinstance(error, DelayQError):
                    raise error
        except DelayQError as error:
            fields = {"error": str(error), "seconds": LEAD_SECONDS}
            log.warning("leadership_not_released", extra={"fields": fields})

"""Tasks whose lease ran out, where the document names a check: it is asked, and its verdict carried out.

Under the task's recovery lock, so that of any number of scanners and reapers one asks; and carried out by one script,
which does nothing once the lease, or the lock, is not what it was. Who dies in between leaves a lock that expires.
Not here: the checks. Without one, leases are taken back by reclaim.py, in one call for many.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from delayq.alarm import Alarm
from delayq.checks import CONCURRENCY
from delayq.checks.asking import Asking, Judgement
from delayq.connection import AsyncConnection
from delayq.errors import DelayQError
from delayq.values import Recovered, Unreadable, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.broker import Broker, Call
    from delayq.checks import Check
    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.message import Task

log = logging.getLogger(__name__)

PAGE = 100  # leases a look reads at a time
LOOK_SECONDS = 5.0  # the longest pause between two looks
BUSY_SECONDS = 1.0  # before another look at a lease that somebody else recovers, or that could not be
MARGIN_SECONDS = 5.0  # by which the lock outlives the question: Redis has to be told the verdict, too
UNDONE = frozenset({Recovered.GONE, Recovered.ALIVE, Recovered.LOCK_LOST})


class Lapsed(NamedTuple):
    """One lease that ran out."""

    shard: int
    member: bytes

    @property
    def task_id(self) -> str:
        """Its task; an id that is not UTF-8 comes with replacement characters."""
        return self.member.rpartition(b":")[0].decode(errors="replace")

    @property
    def token(self) -> int | None:
        """Its fencing number."""
        number = self.member.rpartition(b":")[2]
        return int(number) if number.isdigit() else None


class Recovery:
    """Recovers up to CONCURRENCY tasks at a time, of the shards it is told to look after."""

    name, blocks = "recovery", False

    def __init__(
        self, broker: Broker, address: Address, spec: Spec, check: Check, *, shards: Iterable[int] = ()
    ) -> None:
        """Nothing is connected before the first step. `shards` is where to look at first, see watch()."""
        if spec.reaper.check is None:
            raise ValueError("spec.reaper.check: expected a check, got none")
        self._broker, self._connection = broker, AsyncConnection(address)
        self._asking = Asking(check, spec.reaper.check)
        self._lock_ms = int((spec.reaper.check.timeout_seconds + MARGIN_SECONDS) * 1000)
        self._wait_ms, self._max_crashes = spec.reaper.check.wait_seconds * 1000, spec.delivery.max_crashes
        # A lease that comes after a look cannot run out sooner than this.
        self._longest = min(LOOK_SECONDS, float(spec.delivery.lease_seconds))
        self._owner = secrets.token_hex(8)
        self._running: dict[Lapsed, asyncio.Task[None]] = {}
        self._busy: dict[Lapsed, float] = {}  # monotonic seconds until which a lease is left alone
        self._last = -1  # the last shard that was looked at
        self.shards = set(shards)
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    @property
    def hangs(self) -> bool:
        """Whether there are questions that ignore their cancellation."""
        return self._asking.given_up > 0

    def watch(self, shard: int, *, leads: bool) -> None:
        """Look after a shard from now on, or no more; what is under way goes on."""
        (self.shards.add if leads else self.shards.discard)(shard)
        self.alarm.ring()

    @property
    def busy(self) -> int:
        """How many leases are left alone for now, because somebody else recovers them."""
        return len(self._busy)

    async def step(self) -> float:
        """Begin to recover what there is, as far as there is room; the end of each rings the alarm."""
        now = time.monotonic()
        self._busy = {lapsed: until for lapsed, until in self._busy.items() if until > now}
        pause = self._longest
        # Each step goes on behind the shard where the last one ended: a shard full of slow questions is one of many.
        for shard in sorted(self.shards, key=lambda shard: (shard <= self._last, shard)):
            if not self._room:
                break
            self._last = shard
            pause = min(pause, await self._look(shard))
        return min([pause, *(max(0.001, until - now) for until in self._busy.values())])

    @property
    def _room(self) -> int:
        return CONCURRENCY - len(self._running)

    async def _look(self, shard: int) -> float:
        """Page past leases that are being recovered already; return the seconds until the next one runs out."""
        offset = 0
        while self._room:
            page = await self._connection.one(self._broker.expired(shard, offset=offset, limit=PAGE))
            for lapsed in (Lapsed(shard, member) for member in page.members):
                if self._room and lapsed not in self._running and lapsed not in self._busy:
                    self._begin(lapsed)
            if len(page.members) < PAGE:
                return self._longest if page.next_seconds is None else page.next_seconds + 0.001
            offset += PAGE
        return self._longest

    def _begin(self, lapsed: Lapsed) -> None:
        self._running[lapsed] = task = asyncio.create_task(self._recover(lapsed))
        task.add_done_callback(partial(self._ended, lapsed))

    def _ended(self, lapsed: Lapsed, _task: asyncio.Task[None]) -> None:
        del self._running[lapsed]
        self.alarm.ring()

    async def _recover(self, lapsed: Lapsed) -> None:
        """Recover one task; whatever goes wrong, it is looked at again."""
        try:
            if not await self._locked(lapsed):
                self._leave(lapsed)
        except DelayQError as error:
            self._leave(lapsed)
            fields = {"task_id": lapsed.task_id, "error": str(error)}
            log.warning("recovery_failed", extra={"fields": fields})
        except Exception:
            self._leave(lapsed)
            log.exception("recovery_failed", extra={"fields": {"task_id": lapsed.task_id}})

    def _leave(self, lapsed: Lapsed) -> None:
        self._busy[lapsed] = time.monotonic() + BUSY_SECONDS

    async def _locked(self, lapsed: Lapsed) -> bool:
        """Lock, ask, act, unlock; False when somebody else has the lock."""
        lock = self._broker.lock(
            lapsed.task_id, self._owner, self._lock_ms, lock="recovery_lock", shard=lapsed.shard
        )
        examine = self._broker.examine(lapsed.shard, lapsed.member)
        others_ms, examined = await self._connection.run([lock, examine])
        if others_ms:
            return False
        if examined is None:  # settled, or extended, since we saw it
            await self._connection.one(self._unlock(lapsed))
            return True
        judgement = await self._judgement(examined)
        outcome, _ = await self._connection.run([self._act(lapsed, judgement), self._unlock(lapsed)])
        self._note(lapsed, judgement, outcome)
        return True

    async def _judgement(self, examined: Task | Unreadable) -> Judgement:
        if isinstance(examined, Unreadable):  # the next worker, or the script, buries or drops it
            return Judgement(Verdict.REQUEUE, examined.why, "unreadable")
        return await self._asking.judge(examined)

    def _act(self, lapsed: Lapsed, judgement: Judgement) -> Call[Recovered]:
        return self._broker.recover(
            *lapsed,
            self._owner,
            judgement.verdict,
            reason=judgement.reason,
            failed=int(judgement.failed),
            wait_ms=self._wait_ms,
            max_crashes=self._max_crashes,
        )

    def _unlock(self, lapsed: Lapsed) -> Call[bool]:
        return self._broker.unlock(lapsed.task_id, self._owner, lock="recovery_lock", shard=lapsed.shard)

    def _note(self, lapsed: Lapsed, judgement: Judgement, outcome: Recovered) -> None:
        self.done[outcome] += 1
        fields = {
            "task_id": lapsed.task_id,
            "token": lapsed.token,
            "verdict": judgement.verdict,
            "cause": judgement.cause,
            "reason": judgement.reason,
            "outcome": outcome,
        }
        if outcome in UNDONE:
            log.warning("not_recovered", extra={"fields": fields})
        else:
            log.warning("recovered", extra={"fields": fields})

    async def close(self) -> None:
        """Give up what is under way, and let others ask at once."""
        running = dict(self._running)
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
        with suppress(DelayQError):  # else the locks expire
            await self._connection.run([self._unlock(lapsed) for lapsed in running])
        await self._connection.close()

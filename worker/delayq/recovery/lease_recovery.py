"""One task whose lease ran out: lock, ask, do as the check said and unlock, all at once.

Under the task's recovery lock, so that of any number of scanners and reapers one asks; and carried out by one script,
which does nothing once the lease, or the lock, is not what it was. Who dies in between leaves a lock that expires.
Not here: which leases ran out (recovery.py).
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from delayq.protocol.results import Recovered, Unreadable, Verdict
from delayq.recovery.checks.asking import Asking, Judgement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import Examined
    from delayq.recovery.checks import Check

log = logging.getLogger(__name__)

MARGIN_SECONDS = 5.0  # by which the lock outlives the question and Redis' slowest answers
UNDONE = frozenset({Recovered.GONE, Recovered.ALIVE, Recovered.LOCK_LOST})


class ExpiredLease(NamedTuple):
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


class Recoverer:
    """What it takes to recover any of them."""

    def __init__(self, commands: Commands, connection: AsyncConnection, spec: Spec, check: Check) -> None:
        """ValueError when the spec names no check."""
        if spec.recovery.check is None:
            raise ValueError("spec.recovery.check: expected a check, got none")
        self._commands, self._connection = commands, connection
        self.asking = Asking(check, spec.recovery.check)
        # From the answer that gave us the lock to the one that tells Redis the verdict.
        seconds = spec.recovery.check.timeout_seconds + connection.address.timeout_seconds + MARGIN_SECONDS
        self._lock_ms = int(seconds * 1000)
        self._wait_ms, self._max_crashes = (
            spec.recovery.check.retry_after_seconds * 1000,
            spec.delivery.max_crashes,
        )
        self._owner = secrets.token_hex(8)
        self.done: Counter[str] = Counter()

    async def recover(self, lease: ExpiredLease) -> bool:
        """Lock, ask, act; False when it has to be looked at again in a moment. Raises what Redis does."""
        lock = self._commands.lock(
            lease.task_id, self._owner, self._lock_ms, lock="recovery_lock", shard=lease.shard
        )
        examine = self._commands.examine(lease.shard, lease.member)
        others_ms, examined = await self._connection.run([lock, examine])
        if others_ms:
            return False
        if examined is None:  # settled, or extended, since we saw it
            await self._connection.one(self._unlock(lease))
            return True
        judgement = await self._judgement(examined)
        if judgement is None:
            await self._connection.one(self._unlock(lease))
            return False
        outcome = await self._connection.one(self._act(lease, examined, judgement))
        self._note(lease, judgement, outcome)
        return True

    async def unlock(self, those: Iterable[ExpiredLease]) -> None:
        """Let others ask at once."""
        await self._connection.run([self._unlock(lease) for lease in those])

    async def _judgement(self, examined: Examined) -> Judgement | None:
        if isinstance(examined.task, Unreadable):  # the next worker, or the script, buries or drops it
            return Judgement(Verdict.REQUEUE, examined.task.why, "unreadable")
        return await self.asking.judge(examined.task)

    def _act(self, lease: ExpiredLease, examined: Examined, judgement: Judgement) -> Call[Recovered]:
        return self._commands.recover(
            *lease,
            self._owner,
            judgement.verdict,
            expiry_ms=examined.expiry_ms,
            reason=judgement.reason,
            failed=int(judgement.failed),
            wait_ms=self._wait_ms,
            max_crashes=self._max_crashes,
        )

    def _unlock(self, lease: ExpiredLease) -> Call[bool]:
        return self._commands.unlock(lease.task_id, self._owner, lock="recovery_lock", shard=lease.shard)

    def _note(self, lease: ExpiredLease, judgement: Judgement, outcome: Recovered) -> None:
        self.done[outcome] += 1
        fields = {
            "task_id": lease.task_id,
            "token": lease.token,
            "verdict": judgement.verdict,
            "cause": judgement.cause,
            "reason": judgement.reason,
            "outcome": outcome,
        }
        if outcome in UNDONE:
            log.warning("not_recovered", extra={"fields": fields})
        else:
            log.warning("recovered", extra={"fields": fields})

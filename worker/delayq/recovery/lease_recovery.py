"""Recovery of one task whose lease expired: take the recovery lock, run the check, carry out the verdict, unlock.

The lock makes one process run the check, however many scanners and reapers there are. One script carries out the
verdict; it does nothing if the lease or the lock has changed. The lock of a process that dies expires.
Not here: finding expired leases (recovery.py).
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from delayq.protocol.results import Recovered, Unreadable, Verdict
from delayq.recovery.checks.runner import CheckRunner, Judgement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.protocol.commands import Call, Commands
    from delayq.recovery.checks import Check

log = logging.getLogger(__name__)

MARGIN_SECONDS = 5.0  # by which the lock outlives the timeouts of the check and of Redis
UNDONE = frozenset({Recovered.GONE, Recovered.ALIVE, Recovered.LOCK_LOST})


class ExpiredLease(NamedTuple):
    """One expired lease."""

    shard: int
    member: bytes

    @property
    def task_id(self) -> str:
        """The task's id, with replacement characters if it is not UTF-8."""
        return self.member.rpartition(b":")[0].decode(errors="replace")

    @property
    def token(self) -> int | None:
        """The fencing token."""
        number = self.member.rpartition(b":")[2]
        return int(number) if number.isdigit() else None


class Recoverer:
    """Recovers single tasks."""

    def __init__(self, commands: Commands, connection: AsyncConnection, spec: Spec, check: Check) -> None:
        """`check` is the one that the spec names."""
        options = spec.recovery.check
        assert options is not None  # noqa: S101 -- see above
        self._commands, self._connection = commands, connection
        self.runner = CheckRunner(check, options)
        # From the reply that grants the lock to the call that carries out the verdict.
        seconds = options.timeout_seconds + connection.address.timeout_seconds + MARGIN_SECONDS
        self._lock_ms = int(seconds * 1000)
        self._wait_ms, self._max_crashes = options.retry_after_seconds * 1000, spec.delivery.max_crashes
        self._owner = secrets.token_hex(8)
        self.done: Counter[str] = Counter()

    async def recover(self, lease: ExpiredLease) -> bool:
        """Recover one task; False when it must be tried again soon. Raises errors of Redis."""
        lock = self._commands.lock(
            lease.task_id, self._owner, self._lock_ms, lock="recovery_lock", shard=lease.shard
        )
        examine = self._commands.examine(lease.shard, lease.member)
        others_ms, examined = await self._connection.run([lock, examine])
        if others_ms:
            return False
        if examined is None:  # settled or extended meanwhile
            await self._connection.one(self._unlock(lease))
            return True
        if isinstance(examined.task, Unreadable):  # the next worker buries it, or the script drops it
            judgement: Judgement | None = Judgement(Verdict.REQUEUE, examined.task.why, "unreadable")
        else:
            judgement = await self.runner.judge(examined.task)
        if judgement is None:
            await self._connection.one(self._unlock(lease))
            return False
        act = self._commands.recover(
            *(*lease, self._owner, judgement.verdict),
            expiry_ms=examined.expiry_ms,
            reason=judgement.reason,
            failed=int(judgement.failed),
            wait_ms=self._wait_ms,
            max_crashes=self._max_crashes,
        )
        self._note(lease, judgement, await self._connection.one(act))
        return True

    async def unlock(self, leases: Iterable[ExpiredLease]) -> None:
        """Release the recovery locks of these leases."""
        await self._connection.run([self._unlock(lease) for lease in leases])

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

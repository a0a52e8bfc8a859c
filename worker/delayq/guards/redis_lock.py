"""redis-lock: a task runs while a key in the queue's own Redis names its owner.

SET NX PX with a value that no other run has, renewed at a third of its life, deleted only by who set it. One round trip
more before a handler and one after it.

Limits, beside those of every lock (see locking.py): with a single Redis, a key that Redis loses is unlocked. A
restart without persistence, a failover to a replica that had not received the key, and FLUSHALL let a second run begin;
the first is interrupted within a third of the lock's life, perhaps after its effect. A clock of Redis that
steps ahead does the same to locks that it passes; one that steps back keeps those of dead holders for longer.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq.connection import Address, AsyncConnection
from delayq.errors import DelayQError, GuardBusy, Unavailable
from delayq.guards.locking import LockGuard, busy_ms, unavailable
from delayq.guards.renewal import RENEWALS
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.guards.renewal import LockHold
    from delayq.protocol.commands import Call
    from delayq.protocol.envelope import Task

AWAY_MS: Final = 1000
"""Until a task is tried again whose own server of a Cluster is away."""


class RedisLock(LockGuard):
    """One lock for each task, beside the queue."""

    name = "redis-lock"

    def __init__(
        self,
        address: Address | str,
        *,
        queue: str,
        ttl_seconds: float = 30,
        prefix: str = "delayq",
        shards: int = 1,
    ) -> None:
        """`address` may be a URL, `prefix` and `shards` are the queue's; the latter select the servers to check.

        A lock lies on the shard that its task was claimed from: there, a task that is locked does not move elsewhere.
        """
        super().__init__(ttl_seconds)
        address = Address.from_url(address) if isinstance(address, str) else address
        # A longer wait for an answer would leave no time for a retry.
        seconds = min(address.timeout_seconds, ttl_seconds / RENEWALS)
        self._connection = AsyncConnection(replace(address, timeout_seconds=seconds))
        self._commands = Commands(queue, prefix=prefix, shards=shards)

    @classmethod
    def of(cls, queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> RedisLock:
        """Return the guard of a document with spec.guard.redisLock. `apart` has no meaning without a transaction."""
        del secrets_dir, apart
        spec = queue.spec
        if spec.guard is None or spec.guard.redis_lock is None:
            raise ValueError("spec.guard.redisLock: expected it to be there")
        return cls(
            address,
            queue=queue.queue,
            ttl_seconds=spec.guard.redis_lock.ttl_seconds,
            prefix=spec.redis.key_prefix,
            shards=spec.shards,
        )

    @property
    def where(self) -> str:
        """host:port of the queue's Redis, or of the Sentinels or seeds that find it."""
        return self._connection.address.where

    async def check(self) -> None:
        """Take and give back the lock of no task: a replica would answer a PING.

        In a Cluster one server that serves is enough: another that is unavailable delays only the tasks of its shards,
        which no worker can claim there.
        """
        owner = f"check:{secrets.token_hex(8)}"
        shards = range(len(self._commands.shards) if self._apart else 1)
        locks = [self._commands.lock("", owner, self._ttl_ms, shard=shard) for shard in shards]
        unlocks = [self._commands.unlock("", owner, shard=shard) for shard in shards]
        try:
            answers = (await self._connection.answers([*locks, *unlocks]))[: len(shards)]
        except DelayQError as error:
            raise unavailable(self.where, error) from error
        if all(isinstance(answer, DelayQError) for answer in answers):
            raise unavailable(self.where, answers[0])

    @property
    def _apart(self) -> bool:
        return self._connection.address.is_cluster

    async def _acquire(self, task: Task, owner: str) -> None:
        lock = self._commands.lock(task.id, owner, self._ttl_ms, shard=task.shard)
        try:
            others_ms = await self._connection.one(lock)
        except Unavailable as error:
            if self._apart:  # the guard serves others: the task waits, and not the worker
                raise GuardBusy(str(error), delay_ms=AWAY_MS) from error
            raise unavailable(self.where, error) from error
        except DelayQError as error:
            raise unavailable(self.where, error) from error
        if others_ms:
            delay_ms = busy_ms(others_ms, random.random())  # noqa: S311 -- spreads those who wait
            raise GuardBusy(f"another run of task {task.id} holds its lock", delay_ms=delay_ms)

    async def _renew(self, hold: LockHold) -> bool | None:
        task = hold.task
        return await self._answer(self._commands.renew(task.id, hold.owner, self._ttl_ms, shard=task.shard))

    async def _release(self, task: Task, owner: str) -> bool | None:
        return await self._answer(self._commands.unlock(task.id, owner, shard=task.shard))

    async def _answer(self, call: Call[bool]) -> bool | None:
        try:
            return await self._connection.one(call)
        except DelayQError:
            return None

    async def _disconnect(self) -> None:
        await self._connection.close()

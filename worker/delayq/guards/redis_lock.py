"""redis-lock: a task runs while a key in the queue's own Redis names its owner.

SET NX PX with a value that is unique to the run. It is renewed after a third of the time limit, and only the run that
set it deletes it. This costs one round trip before the handler and one after it.

Limits, beside those of every lock (see locking.py): a lock is gone when its Redis loses the key. After a restart
without persistence, a failover to a replica that had not received the key, or FLUSHALL, a second run can begin. The
first is interrupted within a third of the time limit, perhaps after its effect. If Redis' clock jumps ahead, locks
expire early, with the same result. If it jumps back, locks of crashed holders last longer.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delayq.connection import Address, AsyncConnection
from delayq.contract import DelayQueue
from delayq.errors import DelayQError, GuardBusy, Unavailable
from delayq.guards.locking import RENEWALS, LockGuard, LockHold, busy_ms, unavailable
from delayq.protocol.commands import Call, Commands
from delayq.protocol.envelope import Task

AWAY_MS: Final = 1000
"""Delay of a task whose Cluster node is unavailable."""


class RedisLock(LockGuard):
    """One lock for each task, in the queue's Redis."""

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
        """`address` may be a URL. `prefix` and `shards` are the queue's; check() covers these shards in a Cluster.

        The lock is on the shard that the task was claimed from. Resharding does not move a locked task.
        """
        super().__init__(ttl_seconds)
        address = Address.from_url(address) if isinstance(address, str) else address
        # A longer timeout would leave no time for another renewal.
        seconds = min(address.timeout_seconds, ttl_seconds / RENEWALS)
        self._connection = AsyncConnection(replace(address, timeout_seconds=seconds))
        self._commands = Commands(queue, prefix=prefix, shards=shards)

    @classmethod
    def of(cls, queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> RedisLock:
        """Return the guard of a document with spec.guard.redisLock. `apart` has no meaning without a transaction."""
        del secrets_dir, apart
        spec: Any = queue.spec  # guards.build() has found spec.guard.redisLock in it
        seconds, prefix = spec.guard.redis_lock.ttl_seconds, spec.redis.key_prefix
        return cls(address, queue=queue.queue, ttl_seconds=seconds, prefix=prefix, shards=spec.shards)

    @property
    def where(self) -> str:
        """host:port of the queue's Redis, or of the Sentinels or seeds that find it."""
        return self._connection.address.where

    async def check(self) -> None:
        """Acquire and release a lock of no task. A PING would not be enough: replicas answer it, too.

        In a Cluster, one available server is enough. An unavailable one delays only the tasks of its own shards, which
        workers cannot claim anyway.
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
            if self._apart:  # other nodes may serve: delay this task, not the worker
                raise GuardBusy(str(error), delay_ms=AWAY_MS) from error
            raise unavailable(self.where, error) from error
        except DelayQError as error:
            raise unavailable(self.where, error) from error
        if others_ms:
            delay_ms = busy_ms(others_ms, random.random())  # noqa: S311 -- jitter
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

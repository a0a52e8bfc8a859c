"""redis-lock: a task runs while a key in the queue's own Redis says whose it is.

SET NX PX with a value that no other run has, renewed at a third of its life, deleted only by who set it. One round trip
more before a handler and one after it.

What it cannot promise, beside what no lock can (see locking.py): with a single Redis, what Redis forgets is unlocked. A
restart without persistence, a failover to a replica that had not received the key, and FLUSHALL let a second run begin;
the first is told so within a third of the lock's life, and has had its effect by then or not. A clock of Redis that
steps ahead does the same to locks that it passes; one that steps back keeps those of dead holders for longer.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.broker import Broker
from delayq.connection import Address, AsyncConnection
from delayq.errors import DelayQError, GuardBusy
from delayq.guards.locking import LockGuard, busy_ms, unavailable
from delayq.guards.renewal import RENEWALS

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.broker import Call
    from delayq.contract import DelayQueue
    from delayq.guards.renewal import LockHold


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
        """`address` may be a URL. `prefix` and `shards` are the queue's: a lock lies on its task's shard."""
        super().__init__(ttl_seconds)
        address = Address.from_url(address) if isinstance(address, str) else address
        # An answer that is waited for longer leaves no time to ask again.
        seconds = min(address.timeout_seconds, ttl_seconds / RENEWALS)
        self._connection = AsyncConnection(replace(address, timeout_seconds=seconds))
        self._broker = Broker(queue, prefix=prefix, shards=shards)

    @classmethod
    def of(cls, queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> RedisLock:
        """Return the guard of a document with spec.guard.redisLock; a lock knows no transaction to be apart from."""
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
        """host:port of the queue's Redis."""
        return self._connection.address.where

    async def check(self) -> None:
        """Take and give back the lock of no task: a replica would answer a PING."""
        owner = f"check:{secrets.token_hex(8)}"
        await self._run(self._broker.lock("", owner, self._ttl_ms), self._broker.unlock("", owner))

    async def _acquire(self, task_id: str, owner: str) -> None:
        (others_ms,) = await self._run(self._broker.lock(task_id, owner, self._ttl_ms))
        if others_ms:
            delay_ms = busy_ms(others_ms, random.random())  # noqa: S311 -- spreads those who wait
            raise GuardBusy(f"another run of task {task_id} holds its lock", delay_ms=delay_ms)

    async def _renew(self, hold: LockHold) -> bool | None:
        return await self._told(self._broker.renew(hold.task.id, hold.owner, self._ttl_ms))

    async def _release(self, task_id: str, owner: str) -> bool | None:
        return await self._told(self._broker.unlock(task_id, owner))

    async def _told(self, call: Call[bool]) -> bool | None:
        try:
            return await self._connection.one(call)
        except DelayQError:
            return None

    async def _run(self, *calls: Call[Any]) -> list[Any]:
        try:
            return await self._connection.run(calls)
        except DelayQError as error:
            raise unavailable(self.where, error) from error

    async def _disconnect(self) -> None:
        await self._connection.close()

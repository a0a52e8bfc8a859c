"""Every Redis key, born here once. The keys of one shard share a hash tag, so a script never crosses Cluster slots."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Keys:
    """The keys of shard `shard` of queue `queue`."""

    prefix: str
    queue: str
    shard: int

    def _key(self, name: str) -> str:
        return f"{self.prefix}:{{{self.queue}:{self.shard}}}:{name}"

    @cached_property
    def delayed(self) -> str:
        """Sorted set: task id to due ms."""
        return self._key("delayed")

    @cached_property
    def retry(self) -> str:
        """Sorted set: task id to due ms of the next attempt."""
        return self._key("retry")

    @cached_property
    def processing(self) -> str:
        """Sorted set: lease `id:token` to lease expiry ms.

        Below zero: no worker extends it, and a check's verdict has put it off; the number is minus until when. So
        what is beyond now is held by a worker, and nothing else is.
        """
        return self._key("processing")

    @cached_property
    def tasks(self) -> str:
        """Hash: task id to envelope, for every task in whatever state."""
        return self._key("tasks")

    @cached_property
    def attempts(self) -> str:
        """Hash: task id to `failures crashes last error`, for tasks that failed or crashed and are not dead."""
        return self._key("attempts")

    @cached_property
    def dlq(self) -> str:
        """Sorted set: task id to time of death, ms."""
        return self._key("dlq")

    @cached_property
    def dlq_info(self) -> str:
        """Hash: task id to `failures crashes reason last error`, for dead letters."""
        return self._key("dlq_info")

    @cached_property
    def wake(self) -> str:
        """List: at most one token that idle workers block on."""
        return self._key("wake")

    @cached_property
    def alarm(self) -> str:
        """List: at most one token that tells the sleeping scanner to look again."""
        return self._key("alarm")

    @cached_property
    def leader(self) -> str:
        """String: the leading scanner and its lease expiry ms."""
        return self._key("leader")

    @cached_property
    def cursors(self) -> str:
        """Hash: index name to where its reconciliation goes on, so that reapers that live a minute get to the end."""
        return self._key("cursors")

    @cached_property
    def stats(self) -> str:
        """Hash: monotonic counters, and the last fencing token."""
        return self._key("stats")

    def of(self, task_id: str) -> TaskKeys:
        """Return the same with the keys of one task of this shard."""
        return TaskKeys(self.prefix, self.queue, self.shard, task_id)


@dataclass(frozen=True)
class TaskKeys(Keys):
    """The keys of a shard and of one task in it; the task's own are there while somebody holds it, and expire."""

    task_id: str

    @cached_property
    def lock(self) -> str:
        """String: who runs the task under a guard that locks."""
        return self._key(f"lock:{self.task_id}")

    @cached_property
    def recovery_lock(self) -> str:
        """String: who is asking what to do with the task, whose lease ran out."""
        return self._key(f"recovery_lock:{self.task_id}")


def shard_of(task_id: str, shards: int) -> int:
    """Return the shard that holds a task: a stable hash, the same in every process and version."""
    return zlib.crc32(task_id.encode()) % shards if shards > 1 else 0

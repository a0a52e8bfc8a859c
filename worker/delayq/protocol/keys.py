"""Every Redis key, born here once. The keys of one shard share a hash tag, so a script never crosses Cluster slots."""

from __future__ import annotations

import binascii
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

SLOTS: Final = 16_384
"""Hash slots of a Redis Cluster."""
FORMAT: Final = 2
"""The newest format of a shard's keys that this delayq knows, as prelude.lua has it.

The field `format` of `stats` says which one a shard has; without it, it is 1. A script raises it when it first writes
what processes of older formats cannot know. These go on to schedule, claim and settle; they do not repair, move or
erase.

1: every key below but followups.
2: followups, too.
"""


class _Key(cached_property[str]):
    """A key of a shard, named as the attribute that it is."""

    def __init__(self) -> None:
        super().__init__(lambda keys: keys._key(str(self.attrname)))  # noqa: SLF001 -- of Keys


@dataclass(frozen=True)
class Keys:
    """The keys of shard `shard` of queue `queue`."""

    prefix: str
    queue: str
    shard: int

    delayed = _Key()
    """Sorted set: task id to due ms."""
    retry = _Key()
    """Sorted set: task id to due ms of the next attempt."""
    suspect = _Key()
    """Sorted set: task id to the token of a run, of tasks whose lease expired and that run apart from healthy ones.

    Suspects with one and the same token are a group: half of a run that crashed. Others have the token of their own
    last lease. Workers lease them with isolate.lua; they count under limits.maxLength as all live tasks do. The
    reaper prunes ids without a task; one that lost its entry is adopted by `retry` or `delayed`.
    """
    isolation = _Key()
    """String: the worker that claims nothing until its tasks have ended, so that it can run suspects; expires."""
    processing = _Key()
    """Sorted set: lease `id:token` to lease expiry ms.

    Below zero: no worker extends it, and a check's verdict has put it off; the number is minus until when. So
    what is beyond now is held by a worker, and nothing else is.
    """
    tasks = _Key()
    """Hash: task id to envelope, for every task in whatever state."""
    attempts = _Key()
    """Hash: task id to `failures crashes last error`, for tasks that failed or crashed and are not dead.

    A task that waits for a retry, or that was redriven for later, has `failures crashes @due last error`: its due
    time, ms, survives the loss of the index. Then a mark may follow: `~alone:group:size`, see attempts_of() in
    prelude.lua.
    """
    dlq = _Key()
    """Sorted set: task id to time of death, ms."""
    dlq_info = _Key()
    """Hash: task id to `failures crashes reason last error`, for dead letters."""
    followups = _Key()
    """Hash: task id to the envelope that takes the task's place once it has ended.

    Only of a task that is in flight, or that failed and waits. The reaper makes it the task if that is gone. It has
    the task's place in limits.maxLength, and counts towards limits.maxBytes once it is the task. A dead letter has
    none, so purge does not concern it. A task that has one stays in its shard until it has ended.
    """
    wake = _Key()
    """List: at most one token that idle workers block on."""
    alarm = _Key()
    """List: at most one token that tells the sleeping scanner to look again."""
    leader = _Key()
    """String: the leading scanner and its lease expiry ms."""
    cursors = _Key()
    """Hash: index name to where its reconciliation goes on, so that reapers that live a minute get to the end.

    `home` holds the epoch of the shard map under which a full scan found every task at home. `clock` holds the
    time, ms, of the last check for a step back of Redis' clock.
    """
    stats = _Key()
    """Hash: monotonic counters, the last fencing token, and the shard's format, see FORMAT."""
    scanners = _Key()
    """Sorted set: scanner to when it counts as gone, ms; so that each knows its part of the shards."""
    shard_map = _Key()
    """String: the newest shard map that this shard has heard of."""
    moving = _Key()
    """Sorted set: task id to the token under which it departed, of tasks on their way to another shard."""
    moving_info = _Key()
    """Hash: task id to `shard index score`, where it is going."""
    arrived = _Key()
    """Hash: shard to the token of its last batch that landed here; `shard:token` to 1 for what arrived since."""
    rate = _Key()
    """String: when the next claim would be within spec.limits.ratePerSecond, µs; expires."""

    def _key(self, name: str) -> str:
        return f"{self.prefix}:{{{self.queue}:{self.shard}}}:{name}"

    @cached_property
    def _lists(self) -> dict[tuple[str, ...], list[str]]:
        return {}

    def of_names(self, names: tuple[str, ...]) -> list[str]:
        """Return the keys of these names, in their order; not to be changed."""
        found = self._lists.get(names)
        if found is None:
            found = self._lists[names] = [getattr(self, name) for name in names]
        return found

    @cached_property
    def slot(self) -> int:
        """Hash slot of all these keys in a Redis Cluster: CRC16 of the hash tag."""
        tag = f"{self.queue}:{self.shard}".encode()
        return binascii.crc_hqx(tag, 0) % SLOTS

    @property
    def nothing(self) -> str:
        """Never there. In a Cluster each script names it, so that none runs while its slot is under migration.

        A script runs there while all keys that it names are there still, and is refused its own ones in the middle of
        its work once it has emptied them: half of a transition would stay. With a key that is not there it is put off.
        """
        return self._key("nothing")

    def claimed_by(self, claimer: str) -> ClaimerKeys:
        """Return the same with the key of one of those who claim from this shard."""
        return _of_claimer(self.prefix, self.queue, self.shard, claimer)

    def of(self, task_id: str) -> TaskKeys:
        """Return the same with the keys of one task of this shard."""
        return TaskKeys(self.prefix, self.queue, self.shard, task_id)


@dataclass(frozen=True)
class TaskKeys(Keys):
    """The keys of a shard and of one task in it; the task's own keys exist while it is locked, and expire."""

    task_id: str

    @cached_property
    def lock(self) -> str:
        """String: who runs the task under a guard that locks."""
        return self._key(f"lock:{self.task_id}")

    @cached_property
    def recovery_lock(self) -> str:
        """String: who is asking what to do with the task, whose lease ran out."""
        return self._key(f"recovery_lock:{self.task_id}")


@dataclass(frozen=True)
class ClaimerKeys(Keys):
    """The keys of a shard, and of one worker that claims from it."""

    claimer: str

    @cached_property
    def claim(self) -> str:
        """String: number, lease expiry ms, first token and token count of the claimer's last claim that brought tasks.

        Expires with the leases, so it needs no repair. It is no task: it counts towards no quota, and neither purge nor
        a change of shards concerns it. An erased shard may have it until it expires.
        """
        return self._key(f"claim:{self.claimer}")


@lru_cache(maxsize=1024)  # a worker asks for the same ones with each claim
def _of_claimer(prefix: str, queue: str, shard: int, claimer: str) -> ClaimerKeys:
    return ClaimerKeys(prefix, queue, shard, claimer)


def shard_of(task_id: str, shards: int) -> int:
    """Return the shard that holds a task: a stable hash, the same in every process and every version from this one on.

    Jump consistent hashing (Lamping and Veach, 2014): from M shards to N > M, a task stays or goes to one of the new
    ones, and from N to M only those of the dropped ones go anywhere.
    """
    if shards == 1:
        return 0
    key, bucket, jump = zlib.crc32(task_id.encode()), 0, 0
    while jump < shards:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        jump = int((bucket + 1) * (2147483648.0 / ((key >> 33) + 1)))
    return bucket

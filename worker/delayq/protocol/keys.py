"""Every Redis key. The keys of one shard share a hash tag, so a script never crosses Cluster slots."""

from __future__ import annotations

import binascii
import re
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

SLOTS: Final = 16_384
"""Hash slots of a Redis Cluster."""
FORMAT: Final = 6
"""The format of a shard's keys, as in prelude/basics.lua: what the keys below hold.

The field `format` of `stats` is a shard's format. A script that would write to a shard of another format ends with an
error instead (check_format): older and newer processes share no shard. A shard without `stats` is new. Versions before
0.7.0 had formats 1 to 5; format 1 had no field.
"""


class _Key(cached_property[str]):
    """A key of a shard, named after its attribute."""

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
    """Sorted set: suspect's task id to the token of a run.

    Suspects with the same token are a group: half of a run that crashed. Others have the token of their own last
    lease. Workers lease them with isolate.lua; limits.maxLength counts them. The reaper prunes ids without a task; a
    task that lost its entry returns to `retry` or `delayed`.
    """
    isolation = _Key()
    """String: the worker that has stopped claiming in order to run suspects; expires."""
    processing = _Key()
    """Sorted set: lease `id:token` to lease expiry ms.

    Below zero: the lease expired, and a check's verdict deferred its recovery; the number is minus the time until
    which it waits. So a score after now, and only such a score, is a lease that a worker holds.
    """
    tasks = _Key()
    """Hash: task id to envelope, for tasks in all states."""
    attempts = _Key()
    """Hash: task id to `failures crashes last error`, for tasks that failed or crashed and are not dead.

    While a task waits for a retry or a delayed redrive, `@due` (ms) follows the crashes, so that its due time survives
    the loss of the index. A mark `~alone:group:size` may follow, see attempts_of() in prelude/entries.lua.
    """
    dlq = _Key()
    """Sorted set: task id to time of death, ms."""
    dlq_info = _Key()
    """Hash: task id to `failures crashes reason last error`, for dead letters."""
    followups = _Key()
    """Hash: task id to the envelope of its follow-up.

    Only tasks in flight, retrying or parked have one; dead letters have none, so purge ignores it. If the task is
    missing, the reaper promotes the follow-up. limits.maxLength counts both as one task, limits.maxBytes counts a
    follow-up once it is the task. A task with a follow-up does not migrate.
    """
    parked = _Key()
    """Sorted set: `kind version due id` of tasks whose kind or version no worker here knew, all with score 0.

    In lexical order, so tasks of one kind and version are neighbours, the earliest due first. A worker that has the
    kind returns them to `delayed`, `retry` or `suspect`. limits.maxLength counts them.
    """
    deadlines = _Key()
    """Sorted set: task id to a time from which the task may have missed its deadline, ms.

    A hint: the envelope says what the deadline is. Scanners examine an entry from its time on; entries of tasks that
    are in flight are postponed, and those of tasks without a deadline removed.
    """
    tags = _Key()
    """Sorted set: `tag id`, all with score 0, so that the tasks of one tag are neighbours.

    A hint: the envelope says what the tags are. The reaper removes entries whose task does not exist or has other tags.
    """
    cancelling = _Key()
    """Hash: ID of a task in flight whose run is to be cancelled to the last token of the shard when that was asked for.

    About runs up to this token. Whatever ends the lease ends the task as cancelled, except an ack. So a task in another
    state has no entry; the reaper removes one that a process of an older version left. limits ignore it.
    """
    finished = _Key()
    """Sorted set: task id to the time, ms, at which it was done: the history of spec.retention.finished.

    A task may be in it and exist again. Entries stay in their shard when its number changes, and end there.
    """
    finished_info = _Key()
    """Hash: task id to `attempts late due seconds`, see finished_task() in prelude/history.lua."""
    schedules = _Key()
    """Sorted set: ID `@NAME` of a schedule's record to the time of the scanner's next look at it, ms; inf: never.

    The record is an entry of `tasks`, an envelope with the definition as its payload. Its entry in `attempts` is its
    state, see prelude/schedules.lua. limits.maxLength counts it as a task. Occurrences have the tag `@NAME`.
    """
    wake = _Key()
    """List: at most one token that idle workers block on."""
    alarm = _Key()
    """List: at most one token that wakes the sleeping scanner."""
    leader = _Key()
    """String: the leading scanner and its lease expiry ms."""
    cursors = _Key()
    """Hash: index name to the cursor of its reconciliation, so that short-lived reapers complete it.

    `home` holds the epoch of the shard map under which a full scan found every task at home. `clock` holds the
    time, ms, of the last check for a step back of Redis' clock.
    """
    stats = _Key()
    """Hash: monotonic counters, sizes, the last fencing token, and the shard's format, see FORMAT.

    `cancelling` is the number of entries of that key, and absent at 0: what ends leases reads it with the format.
    While `delayq suspend` is in effect, `suspended` is `since policy reason`: ms, Hold or Drain, any text. Shard 0
    decides; the copies of the other shards in a Cluster are for workers that have never reached shard 0.
    """
    scanners = _Key()
    """Sorted set: scanner to its expiry, ms; the leader election divides the shards among them."""
    delayqueues = _Key()
    """Sorted set: UID of a DelayQueue whose scanners serve this queue to the time from which it counts as gone, ms.

    Two DelayQueues that share their tasks find each other so, and the tasks of one are not erased with the other. A
    scanner without a DelayQueue writes nothing.
    """
    shard_map = _Key()
    """String: the newest shard map that this shard has received."""
    kinds = _Key()
    """Hash of shard 0: release of workers with an App to its kinds, as JSON; `release:until` to a time, ms.

    Until then, the release counts. Workers renew it, and remove other ones that were not renewed. The HTTP API checks
    tasks by it. The key expires a day after the last renewal.
    """
    moving = _Key()
    """Sorted set: migrating task's id to the token of its batch."""
    moving_info = _Key()
    """Hash: task id to `shard index score` of its target."""
    arrived = _Key()
    """Hash: source shard to the token of its last batch verified here; `shard:token` to 1 for batches since."""
    rate = _Key()
    """String: time of the next claim that spec.limits.ratePerSecond allows, µs; expires."""

    def _key(self, name: str) -> str:
        return f"{self.prefix}:{{{self.queue}:{self.shard}}}:{name}"

    @cached_property
    def _lists(self) -> dict[tuple[str, ...], list[str]]:
        return {}

    def of_names(self, names: tuple[str, ...]) -> list[str]:
        """Return the keys of these names, in their order, as a shared list: do not change it."""
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
        """A key that never exists. In a Cluster each script declares it, so that none runs while its slot migrates.

        A source node runs a script while all its declared keys exist, but rejects access to a key that the script has
        emptied, and leaves half of a transition. A missing key makes it reject the script at the start.
        """
        return self._key("nothing")

    def claimed_by(self, claimer: str) -> ClaimerKeys:
        """Return the same with the key of one claimer of this shard."""
        return _of_claimer(self.prefix, self.queue, self.shard, claimer)

    def of(self, task_id: str) -> TaskKeys:
        """Return the same with the keys of one task of this shard."""
        return TaskKeys(self.prefix, self.queue, self.shard, task_id)


@dataclass(frozen=True)
class TaskKeys(Keys):
    """The keys of a shard and of one task in it; the task's own keys are locks, which expire."""

    task_id: str

    @cached_property
    def lock(self) -> str:
        """String: the run that holds the lock of a locking guard."""
        return self._key(f"lock:{self.task_id}")

    @cached_property
    def recovery_lock(self) -> str:
        """String: the process that runs the check about the task, whose lease expired."""
        return self._key(f"recovery_lock:{self.task_id}")


@dataclass(frozen=True)
class ClaimerKeys(Keys):
    """The keys of a shard, and of one worker that claims from it."""

    claimer: str

    @cached_property
    def claim(self) -> str:
        """String: number, lease expiry ms, first token and token count of the claimer's last successful claim.

        Expires with the leases, so it needs no repair. It is no task: quotas, purge and resharding ignore it, and an
        erased shard may have it until it expires.
        """
        return self._key(f"claim:{self.claimer}")


@lru_cache(maxsize=1024)  # every claim of a worker needs the same ones
def _of_claimer(prefix: str, queue: str, shard: int, claimer: str) -> ClaimerKeys:
    return ClaimerKeys(prefix, queue, shard, claimer)


_OCCURRENCE: Final = re.compile(r"(@[^@]+)@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z")


def is_occurrence(task_id: str) -> bool:
    """Whether this is the ID of an occurrence of a schedule, `@NAME@TIME`."""
    return task_id.startswith("@") and _OCCURRENCE.fullmatch(task_id) is not None


def shard_of(task_id: str, shards: int) -> int:
    """Return the shard of a task: a stable hash, the same in every process and every later version.

    Jump consistent hashing (Lamping and Veach, 2014): from M shards to N > M, a task stays or moves to a new shard;
    from N to M, only the tasks of dropped shards move. Occurrences `@NAME@TIME` are where their record `@NAME` is.
    """
    if shards == 1:
        return 0
    if task_id.startswith("@"):
        occurrence = _OCCURRENCE.fullmatch(task_id)
        task_id = occurrence[1] if occurrence else task_id
    key, bucket, jump = zlib.crc32(task_id.encode()), 0, 0
    while jump < shards:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        jump = int((bucket + 1) * (2147483648.0 / ((key >> 33) + 1)))
    return bucket

"""One method per verb: each returns the Call that performs it. Nothing here waits; connection.py sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from delayq import replies, scripts
from delayq.keys import Keys, shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delayq.scripts import Argument, Script
    from delayq.values import (
        Cancelled,
        Claimed,
        Counts,
        Examined,
        Expired,
        Leadership,
        Recovered,
        Rescheduled,
        Settled,
        State,
        TaskRow,
        TaskView,
        Verdict,
        Wait,
    )

T = TypeVar("T")

# Inside Broker, `list` is a verb.
Settlements: TypeAlias = "list[Settled]"
Rows: TypeAlias = "list[TaskRow]"
Pairs: TypeAlias = "list[tuple[str, str]]"
Ids: TypeAlias = "list[bytes]"
Lock: TypeAlias = Literal["lock", "recovery_lock"]  # keys of a single task

CLAIM_LIMIT = 250  # tasks a claim may lease: about a millisecond of Redis' time
BATCH = 250  # tasks any other call may carry


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script to run, and how to read its reply."""

    script: Script
    arguments: list[Argument]
    decode: Callable[[Any], T]


class Broker:
    """The verbs of one queue."""

    def __init__(self, queue: str, *, prefix: str = "delayq", shards: int = 1) -> None:
        """`shards` is how many sorted sets the queue is spread over."""
        self.queue = queue
        self.shards = tuple(Keys(prefix, queue, shard) for shard in range(shards))

    def shard_of(self, task_id: str) -> int:
        """Return the shard a task lives in."""
        return shard_of(task_id, len(self.shards))

    def _call(
        self,
        verb: str,
        shard: int,
        decode: Callable[[Any], T],
        rest: Iterable[Argument] = (),
        **named: Argument,
    ) -> Call[T]:
        script = scripts.load(verb)
        return Call(script, script.bind(self.shards[shard], rest, **named), decode)

    def _of_lock(
        self,
        verb: str,
        task_id: str,
        decode: Callable[[Any], T],
        *,
        shard: int | None = None,
        **named: Argument,
    ) -> Call[T]:
        script = scripts.load(verb)
        keys = self.shards[self.shard_of(task_id) if shard is None else shard].of(task_id)
        return Call(script, script.bind(keys, **named), decode)

    def _of_task(self, verb: str, task_id: str, decode: Callable[[Any], T], **named: Argument) -> Call[T]:
        return self._call(verb, self.shard_of(task_id), decode, (), id=task_id, **named)

    # from outside

    def schedule(self, shard: int, tasks: Sequence[Argument], **options: Argument) -> Call[replies.Stored]:
        """Store tasks given flat as id, when, body; options: if_exists, repeated, max_length, max_delay_ms."""
        return self._call("schedule", shard, replies.stored, tasks, **options)

    def cancel(self, task_id: str) -> Call[Cancelled]:
        """Forget a task that is not running."""
        return self._of_task("cancel", task_id, replies.cancelled)

    def reschedule(self, task_id: str, when: str, *, max_delay_ms: int) -> Call[Rescheduled]:
        """Move the due time of a task that is not running; `when` is "+delay" or an instant, in ms."""
        return self._of_task("reschedule", task_id, replies.rescheduled, when=when, max_delay_ms=max_delay_ms)

    def get(self, task_id: str) -> Call[TaskView | None]:
        """Return everything the queue knows of one task."""
        return self._of_task("get", task_id, replies.view(task_id), pattern=_glob(task_id) + ":*")

    def list(self, shard: int, state: State, *, offset: int, limit: int) -> Call[Rows]:
        """Return one page of the tasks in a state, by score."""
        leased = int(state == "processing")
        return self._call(
            "list", shard, replies.rows(state), index=state.value, offset=offset, limit=limit, leased=leased
        )

    def counts(
        self, shard: int, horizons_ms: Sequence[int] = (), instants_ms: Sequence[int] = ()
    ) -> Call[Counts]:
        """Count the tasks of one shard by state, and what falls due within each horizon and by each instant."""
        times: list[Argument] = [*(f"+{horizon}" for horizon in horizons_ms), *instants_ms]
        return self._call("counts", shard, replies.counts(horizons_ms, instants_ms), times)

    # leases

    def claim(self, shard: int, limit: int, lease_ms: int) -> Call[Claimed]:
        """Lease up to `limit` due tasks."""
        decode = replies.claimed(self.queue, shard)
        return self._call("claim", shard, decode, limit=min(limit, CLAIM_LIMIT), lease_ms=lease_ms)

    def extend(self, shard: int, members: Sequence[bytes], lease_ms: int) -> Call[set[int]]:
        """Prolong leases; answers with the positions of those that were lost."""
        return self._call("extend", shard, set[int], members, lease_ms=lease_ms)

    def ack(self, shard: int, members: Sequence[bytes]) -> Call[Settlements]:
        """Finish tasks for good."""
        return self._call("ack", shard, replies.settled(len(members), "acked"), members)

    def retry(self, shard: int, settles: Sequence[Argument], *, max_attempts: int) -> Call[Settlements]:
        """Put failed tasks back; `settles` is flat: member, delay ms, charge (1 or 0), error."""
        return self._call("retry", shard, replies.each_settled, settles, max_attempts=max_attempts)

    def bury(self, shard: int, settles: Sequence[Argument]) -> Call[Settlements]:
        """Make tasks dead letters; `settles` is flat: member, error."""
        return self._call("bury", shard, replies.each_settled, settles)

    def release(self, shard: int, settles: Sequence[Argument]) -> Call[Settlements]:
        """Hand tasks back without charging an attempt; `settles` is flat: member, due ms."""
        return self._call("release", shard, replies.settled(len(settles) // 2, "released"), settles)

    # upkeep

    def wake(self, shard: int) -> Call[Wait]:
        """Hint a worker when something is due; tells how long a scanner may sleep."""
        return self._call("wake", shard, replies.wait)

    def lead(self, shard: int, owner: str, lease_ms: int) -> Call[Leadership]:
        """Become or stay the leading scanner of a shard; a lease of 0 ms gives it up."""
        return self._call("lead", shard, replies.leadership, owner=owner, lease_ms=lease_ms)

    def reclaim(self, shard: int, *, max_crashes: int, limit: int = 100) -> Call[Pairs]:
        """Take back leases that ran out; answers with member and outcome of each."""
        return self._call("reclaim", shard, replies.pairs, limit=limit, max_crashes=max_crashes)

    def expired(self, shard: int, *, offset: int, limit: int) -> Call[Expired]:
        """Return a page of the leases that ran out, the longest ago first, and when the next will."""
        return self._call("expired", shard, replies.expired, offset=offset, limit=limit)

    def examine(self, shard: int, member: bytes) -> Call[Examined | None]:
        """Return the task of a lease that ran out, for a check to be asked about."""
        return self._call("examine", shard, replies.examined(self.queue, member), member=member)

    def recover(
        self, shard: int, member: bytes, owner: str, verdict: Verdict, **options: str | int
    ) -> Call[Recovered]:
        """Do as a check said with a task whose lease ran out.

        Options: expiry_ms as examined, reason, wait_ms, max_crashes, failed.
        """
        task_id = member.rpartition(b":")[0].decode(errors="replace")
        named: dict[str, Argument] = {"member": member, "owner": owner, "verdict": verdict.value, **options}
        script = scripts.load("recover")
        return Call(script, script.bind(self.shards[shard].of(task_id), **named), replies.recovered)

    def rewind(self, shard: int, lease_ms: int, *, limit: int = BATCH) -> Call[int]:
        """Shorten leases that outlive their length because Redis' clock stepped back."""
        return self._call("rewind", shard, int, lease_ms=lease_ms, limit=limit)

    def reconcile(self, shard: int, index: str, cursor: int = -1, *, count: int = 50) -> Call[replies.Mended]:
        """Hold a page of one index (a key's name) against the others; -1 goes on where anybody's last page ended."""
        scan = "HSCAN" if index in {"tasks", "attempts", "dlq_info"} else "ZSCAN"
        return self._call(
            "reconcile", shard, replies.mended, index=index, name=index, scan=scan, cursor=cursor, count=count
        )

    def adopt(self, shard: int, ids: Sequence[bytes]) -> Call[Ids]:
        """Give tasks that are in no index, and not leased, a home again; answers with those that were."""
        return self._call("adopt", shard, replies.ids, ids)

    def erase(self, shard: int) -> Call[tuple[int, int]]:
        """Forget everything a shard holds; answers with how many keys and tasks that was."""
        return self._call("erase", shard, replies.erased)

    # one task, held alone; every lock expires

    def lock(
        self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[int]:
        """Hold a task alone, or still; answers with 0, or for how many ms somebody else's lock may yet last.

        `shard` is where the task was found; without it, where its id says it is.
        """
        # Should another document have asked for longer, recovery does no harm: a verdict without its lock is none.
        # A guard would.
        equal = int(lock == "recovery_lock")
        return self._of_lock(
            "lock", task_id, int, shard=shard, lock=lock, owner=owner, ttl_ms=ttl_ms, equal=equal
        )

    def renew(self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock") -> Call[bool]:
        """Hold a task for longer; answers whether it was held still."""
        return self._of_lock("renew", task_id, bool, lock=lock, owner=owner, ttl_ms=ttl_ms)

    def unlock(
        self, task_id: str, owner: str, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[bool]:
        """Let others have a task; answers whether it was held still. `shard` as for lock."""
        return self._of_lock("unlock", task_id, bool, shard=shard, lock=lock, owner=owner)

    # dead letters

    def redrive(self, shard: int, letters: Sequence[Argument]) -> Call[int]:
        """Give dead letters a new life; `letters` is flat: id, delay ms."""
        return self._call("redrive", shard, int, letters)

    def purge(self, shard: int, ids: Sequence[str], *, before_ms: int | str = "inf") -> Call[int]:
        """Forget dead letters that died before `before_ms`."""
        return self._call("purge", shard, int, ids, before_ms=before_ms)


def _glob(task_id: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in task_id)

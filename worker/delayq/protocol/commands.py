"""One method per verb: each returns the Call that performs it. No I/O here; connection/ sends calls."""

from __future__ import annotations

import logging
import math
import random
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from delayq.contract.metrics import KINDS_SAMPLED, MOST_PARKED
from delayq.protocol import replies, scripts
from delayq.protocol.alarm import Alarm
from delayq.protocol.keys import Keys
from delayq.protocol.quota import history, quota
from delayq.protocol.results import (
    INDEXES,
    UNRECORDED,
    Cancelled,
    ClampedLeases,
    Position,
    Recovered,
    Selection,
    Settled,
    State,
)
from delayq.protocol.shard_map import ShardMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delayq.contract import Finished, Limits
    from delayq.protocol.envelope import Task
    from delayq.protocol.results import (
        BatchOutOfOrder,
        BulkPage,
        Claimed,
        Counts,
        Erased,
        Examined,
        Expired,
        Extended,
        Leadership,
        ListPage,
        LostTask,
        MigratingTask,
        MigrationBatch,
        ParkedKind,
        Rescheduled,
        RestoredOrphans,
        ScanPage,
        SchedulePage,
        ScheduleRecord,
        ScheduleWritten,
        ShardMapState,
        Suspension,
        TaskView,
        Ticket,
        Verdict,
        Wait,
    )
    from delayq.protocol.scripts import Argument, Script

T = TypeVar("T")

log = logging.getLogger(__name__)

# Inside Commands, `list` is a verb.
Settlements: TypeAlias = "list[Settled]"
ParkedKinds: TypeAlias = "list[ParkedKind]"
Pairs: TypeAlias = "list[tuple[str, str]]"
BulkAction: TypeAlias = Literal["count", "list", "cancel"]
Lock: TypeAlias = Literal["lock", "recovery_lock", "isolation"]  # the last of a shard, others of a task

CLAIM_LIMIT = 250  # tasks per claim: about a millisecond of Redis' time
BATCH = 250  # tasks per call of any other verb
PAGE_BYTES = 1 << 20  # of envelopes that one call of list reads
START = Position(-math.inf, b"")  # before all tasks of a list
ALL = Selection()  # all tasks
MEMBERS = {  # of list.lua
    State.SCHEDULED: "due",
    State.RETRYING: "due",
    State.IN_FLIGHT: "leases",
    State.PARKED: "parked",
}
EXAMINE_AGAIN_MS = 5000  # until expire() examines a task in flight again after its deadline
FULL_AGAIN_MS = 10_000  # until a schedule whose occurrences had no room is looked at again
# Tasks of a tag that one call reads: 0.3 ms of Redis' time. It cancels half as many in the same time.
BULK = 50
SERVES_MS = 30_000  # how long a DelayQueue counts as serving a queue; its pods restart meanwhile
LEASES = 500  # leases that one call reads: about a millisecond of Redis' time
# The release of a worker counts for this long after its last renewal; five minutes are between two.
KINDS_KEEP_MS = 15 * 60 * 1000
KINDS_REST_MS = 24 * 3600 * 1000
# For a week after an erase, Redis rejects the erased queue's shard map, so that clients drop their cached copy.
GONE_MS = 7 * 24 * 3600 * 1000


@dataclass(slots=True)
class Call(Generic[T]):
    """One script to run, and how to read its reply. To freeze it would slow every call."""

    script: Script
    arguments: list[Argument]
    decode: Callable[[Any], T]
    keys: Keys  # of the call's shard: in a Cluster, all of them are on one server


class Move(NamedTuple):
    """How a look changes the record of a schedule."""

    cursor_ms: int
    look_ms: int | None  # the next look; None: never
    missed: int = 0  # occurrences that are not created, because they could not begin in time


class Commands:
    """The verbs of one queue."""

    def __init__(
        self,
        queue: str,
        *,
        prefix: str = "delayq",
        shards: int = 1,
        limits: Limits | None = None,
        drops_expired: bool = False,
        finished: Finished | None = None,
    ) -> None:
        """`shards` is the assumed number of shards until the shard map is read. Only claims need `limits`.

        `drops_expired`: claims and expire() delete tasks that missed their deadline; otherwise these are dead letters.
        `finished`: acks write the history, and trim_finished() keeps it within these bounds; None: there is none.
        """
        self.queue, self._prefix, self._limits, self._drops = queue, prefix, limits, int(drops_expired)
        self.finished = finished
        self._pinned: Commands | None = None  # see pinned_to()
        self.changed = Alarm()  # use_shard_map() rings it; a process' ServiceManager waits on it
        self._assumed = ShardMap.assumed(shards)
        self.use_shard_map(self._assumed)

    def apply_shard_map(self, shard_map: ShardMap | None) -> bool:
        """Adopt a newer shard map; None means that the queue was erased. Returns whether the shard map changed."""
        if shard_map is None:
            shard_map = self._assumed
            changed = self.shard_map.epoch > 0
        else:
            changed = shard_map.newer(self.shard_map)
        if changed:
            if not self._confirms(shard_map):
                steps = {"now": shard_map.shards, "was": shard_map.was, "target": shard_map.target}
                log.info(
                    "shard_map_changed",
                    extra={"fields": {"queue": self.queue, "epoch": shard_map.epoch, **steps}},
                )
            self.use_shard_map(shard_map)
        return changed

    def _confirms(self, shard_map: ShardMap) -> bool:
        """Whether a process that has started reads from Redis what its document implies: no change to log."""
        return not self.shard_map.epoch and shard_map.settled and shard_map.shards == self.shard_map.shards

    def use_shard_map(self, shard_map: ShardMap) -> None:
        """Use this shard map from now on. `shards` are all that it covers."""
        self._pinned = None
        self.shards = tuple(Keys(self._prefix, self.queue, shard) for shard in range(shard_map.shards_in_use))
        self.shard_map = shard_map  # last: if a signal handler raises before, the next call does it again
        self.changed.ring()

    def pinned_to(self, shard_map: ShardMap) -> Commands:
        """Return a copy pinned to this shard map, for calls that must use the same one."""
        pinned = self._pinned
        if pinned is not None and pinned.shard_map is shard_map:
            return pinned
        pinned = copy(self)
        pinned.shard_map = shard_map
        if shard_map.shards_in_use != len(self.shards):
            pinned.shards = tuple(map(self.keys, range(shard_map.shards_in_use)))
        if shard_map is self.shard_map:
            self._pinned = pinned
        return pinned

    def keys(self, shard: int) -> Keys:
        """Return the keys of any shard; leases of a removed shard are still settled there."""
        return self.shards[shard] if shard < len(self.shards) else Keys(self._prefix, self.queue, shard)

    def shard_of(self, task_id: str) -> int:
        """Return the task's home under the current shard map."""
        return self.shard_map.home(task_id)

    def _call(
        self,
        verb: str,
        at: int | Keys,
        decode: Callable[[Any], T],
        rest: Iterable[Argument] = (),
        /,
        **named: Argument,
    ) -> Call[T]:
        """`at` is a shard, or its keys extended with those of a task or a claimer."""
        script, keys = scripts.load(verb), at if isinstance(at, Keys) else self.keys(at)
        return Call(script, script.bind(keys, rest, **named), decode, keys)

    def _lock_keys(self, task_id: str, shard: int | None) -> Keys:
        return self.keys(self.shard_of(task_id) if shard is None else shard).of(task_id)

    def _of_task(
        self, verb: str, task_id: str, shard: int | None, decode: Callable[[Any], T], **named: Argument
    ) -> Call[T]:
        at = self.shard_of(task_id) if shard is None else shard
        return self._known(verb, at, decode, id=task_id, **named)

    def _known(
        self,
        verb: str,
        shard: int,
        decode: Callable[[Any], T],
        rest: Iterable[Argument] = (),
        /,
        **named: Argument,
    ) -> Call[T]:
        """Send the caller's shard map. The reply may be ShardMapOutdated or TaskMigrating."""
        return self._call(verb, shard, replies.at_home(decode), rest, by=self.shard_map.known, **named)

    def _quota(self, shard: int) -> dict[str, Argument]:
        return quota(self._limits, shard, self.shard_map.quota_shards(shard))

    # from outside

    def schedule(
        self,
        shard: int,
        tasks: Sequence[Argument],
        *,
        max_bytes: int = 0,
        passing: bool = False,
        **options: Argument,
    ) -> Call[replies.Stored]:
        """Store tasks given flat as id, when, body; options: if_exists, repeated, max_length, max_delay_ms.

        `passing`: their home is another shard; Redis replaces or keeps tasks that still are here, and adds none.
        """
        options |= {"max_bytes": max_bytes, "passing": int(passing)}
        return self._known("schedule", shard, replies.stored, tasks, **options)

    def cancel(self, task_id: str, *, running: bool = False, shard: int | None = None) -> Call[Cancelled]:
        """Delete a task that is not running; `running`: let the worker of one that is cancel its run.

        `shard`, here and in all calls by id, overrides the task's home.
        """
        return self._of_task("cancel", task_id, shard, replies.word(Cancelled), running=int(running))

    def reschedule(
        self,
        task_id: str,
        when: str,
        *,
        max_delay_ms: int,
        was_ms: int | None = None,
        shard: int | None = None,
    ) -> Call[Rescheduled]:
        """Change the due time of a task that is not running; `when` is "+delay" or an instant, in ms.

        With `was_ms`, only if that is its due time.
        """
        was: Argument = "" if was_ms is None else was_ms
        named: dict[str, Argument] = {"when": when, "max_delay_ms": max_delay_ms, "was": was}
        return self._of_task("reschedule", task_id, shard, replies.rescheduled, **named)

    def get(self, task_id: str, *, shard: int | None = None) -> Call[TaskView | None]:
        """Return everything stored about one task. With many leases, the answer may be Searching."""
        return self._search(task_id, shard, "0", again=True)

    def _search(self, task_id: str, shard: int | None, cursor: str, *, again: bool) -> Call[TaskView | None]:
        """Read a page of leases. `again`: repeat once, because a task claimed again meanwhile may be missed."""

        def next_page(found: str | None) -> Call[TaskView | None] | None:
            if found is not None:
                return self._search(task_id, shard, found, again=again)
            return self._search(task_id, shard, "0", again=False) if again and cursor != "0" else None

        named: dict[str, Argument] = {"pattern": _glob(task_id) + ":*", "cursor": cursor, "count": LEASES}
        return self._of_task("get", task_id, shard, replies.view(task_id, next_page), **named)

    def bulk(
        self, shard: int, action: BulkAction, chosen: Selection, cursor: bytes = b"", *, count: int = 0
    ) -> Call[BulkPage]:
        """Count, list or cancel the selected tasks of one page, which begins at `cursor`; `count` 0 is the default."""
        # Without a tag, the tasks are scattered in memory, which takes twice as long.
        count = count or (BULK if chosen.tag and action != "cancel" else BULK // 2)
        named = {"action": action, "cursor": cursor, "count": count, **_filters(chosen)}
        return self._known("bulk", shard, replies.bulk_page, **named)

    def list(
        self,
        shard: int,
        state: State,
        *,
        limit: int,
        after: Position = START,
        chosen: Selection = ALL,
        kinds: bool = True,
    ) -> Call[ListPage]:
        """Look at up to `limit` tasks of a state after a position, and return those that are selected.

        With `kinds`, which filters need, the page ends after PAGE_BYTES of envelopes.
        """
        named: dict[str, Argument] = {"index": INDEXES[state], "members": MEMBERS.get(state, "ids")}
        named |= {"score": f"{after.score:.17g}", "member": after.member, "limit": limit}
        named |= {"bytes": PAGE_BYTES * kinds, **_filters(chosen)}
        return self._call("list", shard, replies.list_page(state), **named)

    def counts(
        self, shard: int, horizons_ms: Sequence[int] = (), instants_ms: Sequence[int] = ()
    ) -> Call[Counts]:
        """Count the tasks of one shard by state, and what falls due within each horizon and by each instant."""
        times: list[Argument] = [*(f"+{horizon}" for horizon in horizons_ms), *instants_ms]
        return self._call("counts", shard, replies.counts(horizons_ms, instants_ms), times)

    # leases

    def claim(self, shard: int, limit: int, lease_ms: int, *, ticket: Ticket = UNRECORDED) -> Call[Claimed]:
        """Lease up to `limit` due tasks. Redis ignores the claim after the ticket's deadline."""
        return self._claiming("claim", shard, ticket, limit=limit, lease_ms=lease_ms)

    def isolate(self, shard: int, limit: int, lease_ms: int, *, ticket: Ticket = UNRECORDED) -> Call[Claimed]:
        """Lease a group of at most `limit` suspects to a worker that runs nothing else. The ticket is as for claim."""
        return self._claiming("isolate", shard, ticket, limit=limit, lease_ms=lease_ms)

    def _claiming(self, verb: str, shard: int, ticket: Ticket, *, limit: int, lease_ms: int) -> Call[Claimed]:
        return self._call(
            verb,
            self.keys(shard).claimed_by(ticket.claimer),
            replies.claimed(self.queue, shard),
            limit=min(limit, CLAIM_LIMIT),
            lease_ms=lease_ms,
            number=ticket.number,
            not_after_ms=ticket.not_after_ms,
            drops=self._drops,
            **self._quota(shard),
        )

    def unclaim(self, shard: int, claimer: str, number: int, lease_ms: int) -> Call[int]:
        """Return the tasks of a claim whose reply was lost to their indexes; the reply is their number."""
        keys = self.keys(shard).claimed_by(claimer)
        return self._call("unclaim", keys, int, number=number, lease_ms=lease_ms)

    def extend(self, shard: int, members: Sequence[bytes], lease_ms: int) -> Call[Extended]:
        """Extend leases; the reply has the positions of lost ones, and of runs to cancel."""
        return self._call("extend", shard, replies.extended, members, lease_ms=lease_ms)

    def note_blocked(self, shard: int) -> Call[int]:
        """Record for `delayq doctor` that a worker's event loop is blocked; the reply is the time, ms."""
        return self._call("note_blocked", shard, int)

    def ack(self, shard: int, members: Sequence[bytes], tasks: Sequence[Task] = ()) -> Call[Settlements]:
        """Delete tasks whose handlers succeeded. With `tasks`, those of the leases, the history gets their entries."""
        decode = replies.settled(len(members), Settled.ACKED)
        return self._call("ack", shard, decode, members, history=self._entries(shard, tasks) if tasks else "")

    def _entries(self, shard: int, tasks: Sequence[Task]) -> str:
        """Return the history's bounds in this shard and the entries of tasks, for note_finished() in history.lua."""
        bounds = self._history(shard).values()
        seconds = self.finished.seconds if self.finished else 0
        entries = [
            f"{task.attempt} {max(0, task.token // 1000 - task.due_ms)} {task.due_ms} {seconds}"
            for task in tasks
        ]
        return ",".join((" ".join(map(str, bounds)), *entries))

    def _history(self, shard: int) -> dict[str, int]:
        return history(self.finished, shard, self.shard_map.quota_shards(shard))

    def retry(self, shard: int, settles: Sequence[Argument], *, max_attempts: int) -> Call[Settlements]:
        """Schedule failed tasks again; `settles` is flat: member, delay ms, charge (1 or 0), error."""
        return self._call("retry", shard, replies.each_settled, settles, max_attempts=max_attempts)

    def bury(self, shard: int, settles: Sequence[Argument]) -> Call[Settlements]:
        """Make tasks dead letters; `settles` is flat: member, error."""
        return self._call("bury", shard, replies.each_settled, settles)

    def release(self, shard: int, settles: Sequence[Argument]) -> Call[Settlements]:
        """Return tasks to their index without charging an attempt; `settles` is flat: member, due ms."""
        return self._call("release", shard, replies.each_settled, settles)

    def end_cancelled(self, shard: int, members: Sequence[bytes]) -> Call[Settlements]:
        """Delete tasks whose runs were cancelled, because cancel() asked for that."""
        return self._call("end_cancelled", shard, replies.each_settled, members)

    def park(self, shard: int, settles: Sequence[Argument]) -> Call[Settlements]:
        """Set tasks aside of a kind or version unknown here; `settles` is flat: member, its `run_before`."""
        interval_us = self._quota(shard)["interval_us"]
        return self._call("park", shard, replies.each_settled, settles, interval_us=interval_us)

    def unpark(
        self, shard: int, kinds: Iterable[tuple[str, int | None]] | None, *, limit: int = BATCH
    ) -> Call[tuple[int, int]]:
        """Return parked tasks of these kinds and versions to their index; None: of every version, of every kind.

        The reply has the numbers of returned tasks, and of those that are still parked.
        """
        prefixes = [
            (kind or "-") + ("" if version is None else f" {version:05d}") for kind, version in kinds or ()
        ]
        return self._call("unpark", shard, tuple, prefixes, limit=limit if kinds is None or prefixes else 0)

    # scanners and reapers

    def parked(self, shard: int, *, limit: int = MOST_PARKED) -> Call[ParkedKinds]:
        """Count the parked tasks of each kind and version, of the first `limit`."""
        return self._call("parked", shard, replies.parked, limit=limit)

    def due_kinds(self, shard: int, within_ms: int) -> Call[dict[str, float]]:
        """Estimate from a sample how many of the tasks that fall due within a time are of each kind."""
        named = {"within_ms": within_ms, "limit": KINDS_SAMPLED, "random": random.randrange(1, 2**31 - 1)}  # noqa: S311
        return self._call("due_kinds", shard, replies.due_kinds, **named)

    def wake(self, shard: int) -> Call[Wait]:
        """Push a wake token if a task is due; the reply has the time that a scanner may sleep."""
        return self._call("wake", shard, replies.wait, **self._quota(shard))

    def elect(self, shard: int, owner: str, uid: str, lease_ms: int) -> Call[Leadership]:
        """Register as a scanner of a shard, and take part in its leader election. 0 ms gives up both.

        `uid` is that of the scanner's DelayQueue.
        """
        return self._call(
            *("elect", shard, replies.leadership),
            owner=owner,
            shard=shard,
            lease_ms=lease_ms,
            uid=uid,
            uid_ms=SERVES_MS,
        )

    def reclaim(
        self, shard: int, *, max_crashes: int, limit: int = 100, before_ms: int | None = None
    ) -> Call[Pairs]:
        """Reclaim expired leases, only those expired before `before_ms` if given; the reply has member and outcome."""
        before = "" if before_ms is None else before_ms
        return self._call(
            "reclaim", shard, replies.pairs, limit=limit, max_crashes=max_crashes, before_ms=before
        )

    def expire(self, shard: int, *, limit: int = BATCH) -> Call[tuple[int, int]]:
        """End tasks that missed their deadline and are not in flight.

        The reply has the numbers of tasks that ended, and of entries of `deadlines` that it examined.
        """
        named: dict[str, Argument] = {"limit": limit, "drops": self._drops, "again_ms": EXAMINE_AGAIN_MS}
        return self._call("expire", shard, tuple, **named)

    def trim_finished(self, shard: int, *, limit: int = BATCH) -> Call[int]:
        """Remove the oldest entries of the history that are beyond its bounds; the reply is how many."""
        return self._call("trim_finished", shard, int, limit=limit, **self._history(shard))

    def expired(self, shard: int, *, offset: int, limit: int) -> Call[Expired]:
        """Return a page of expired leases, oldest expiry first, and the time until the next expiry."""
        return self._call("expired", shard, replies.expired, offset=offset, limit=limit)

    def examine(self, shard: int, member: bytes) -> Call[Examined | None]:
        """Return the task of an expired lease, as input of a check."""
        return self._call("examine", shard, replies.examined(self.queue, member), member=member)

    def recover(
        self, shard: int, member: bytes, owner: str, verdict: Verdict, **options: str | int
    ) -> Call[Recovered]:
        """Carry out a check's verdict on a task whose lease expired.

        Options: expiry_ms as examined, reason, wait_ms, max_crashes, failed.
        """
        task_id = member.rpartition(b":")[0].decode(errors="replace")
        named: dict[str, Argument] = {"member": member, "owner": owner, "verdict": verdict.value, **options}
        return self._call("recover", self.keys(shard).of(task_id), replies.word(Recovered), **named)

    def clamp_leases(self, shard: int, lease_ms: int, *, limit: int = BATCH) -> Call[ClampedLeases]:
        """Shorten leases longer than `lease_ms` after Redis' clock stepped back; repeat until none is shortened."""
        return self._call("clamp_leases", shard, ClampedLeases._make, lease_ms=lease_ms, limit=limit)

    def reconcile(
        self, shard: int, index: str, cursor: int = -1, *, count: int = 50
    ) -> Call[replies.ReconciledPage]:
        """Compare a page of one index (a key's name) with the others; -1 continues at the stored cursor."""
        if index == "tags":
            return self.reconcile_tags(shard, cursor, count=count)
        hashes = {"tasks", "attempts", "dlq_info", "followups", "cancelling"}
        named = {"index": index, "name": index, "scan": "HSCAN" if index in hashes else "ZSCAN"}
        return self._call("reconcile", shard, replies.reconciled_page, **named, cursor=cursor, count=count)

    def reconcile_tags(
        self, shard: int, cursor: int = -1, *, count: int = 50
    ) -> Call[replies.ReconciledPage]:
        """Remove the stale entries of a page of `tags`."""
        return self._call("reconcile_tags", shard, replies.reconciled_page, cursor=cursor, count=count)

    def audit_size(self, shard: int, *, count: int = 300) -> Call[replies.SizeAuditPage]:
        """Add up the sizes of a page of tasks; after the last page, correct the counter of bytes."""
        return self._call("audit_size", shard, replies.size_audit_page, count=count)

    def restore_orphans(
        self, shard: int, lost: Sequence[LostTask], cursor: str = "0"
    ) -> Call[RestoredOrphans]:
        """Index tasks again that are in no index and not leased; repeat with the reply's tasks and cursor."""
        flat = [item for task in lost for item in task]
        return self._call(
            "restore_orphans", shard, replies.restored_orphans, flat, cursor=cursor, count=LEASES
        )

    def erase(self, shard: int, uid: str = "") -> Call[Erased]:
        """Delete everything a shard holds, unless scanners of another DelayQueue than `uid` serve it."""
        return self._call("erase", shard, replies.erased, gone_ms=GONE_MS, uid=uid, uid_ms=SERVES_MS)

    # recurring schedules; a record has the ID @NAME

    def put_schedule(
        self, record_id: str, body: bytes, owner: str, *, max_length: int, max_bytes: int, shard: int
    ) -> Call[ScheduleWritten]:
        """Write a definition, an envelope without its due time; b"" deletes the schedule. clear_schedule() follows."""
        quotas = {"max_length": max_length, "max_bytes": max_bytes}
        passing = int(shard != self.shard_of(record_id))
        named: dict[str, Argument] = {"body": body, "owner": owner, **quotas, "passing": passing}
        return self._of_task("put_schedule", record_id, shard, replies.put_schedule, **named)

    def clear_schedule(
        self, record_id: str, version: int, cursor: bytes = b"", *, shard: int, limit: int = BULK
    ) -> Call[tuple[int, bytes]]:
        """Remove a page of occurrences that the last change made obsolete; repeat from the cursor until it is b""."""
        named: dict[str, Argument] = {"version": version, "cursor": cursor, "limit": limit}
        return self._of_task("clear_schedule", record_id, shard, replies.cleared, **named)

    def create_occurrences(
        self,
        shard: int,
        record: ScheduleRecord,
        occurrences: Sequence[Argument],
        *,
        room: Mapping[str, int],
        move: Move | None = None,
    ) -> Call[int | str]:
        """Store occurrences, flat as ID, due ms and body; the reply is how many are new, or "changed" or "full".

        `room` comes from quota.room().
        """
        named: dict[str, Argument] = {
            "version": record.version,
            "seen": "",
            "cursor": "",
            "look": "",
            "missed": 0,
        }
        if move:
            look = "" if move.look_ms is None else move.look_ms
            named |= {"seen": record.cursor_ms, "cursor": move.cursor_ms, "look": look, "missed": move.missed}
        named |= {**room, "again_ms": FULL_AGAIN_MS}
        return self._known("create_occurrences", shard, replies.created, occurrences, id=record.id, **named)

    def list_schedules(
        self, shard: int, *, offset: int = 0, limit: int = BATCH, due: bool = False
    ) -> Call[SchedulePage]:
        """Return a page of the records of a shard; with `due`, those at which the scanner has to look now."""
        return self._call(
            "list_schedules", shard, replies.schedules, due=int(due), offset=offset, limit=limit
        )

    # suspension: shard 0 says whether the queue is suspended; in a Cluster, the other shards have copies

    def suspend(self, shard: int, *, drain: bool = False, reason: str = "") -> Call[Suspension | None]:
        """Stop the tasks of the queue; the reply says since when they are."""
        policy = "Drain" if drain else "Hold"
        return self._call("suspend", shard, replies.suspension, policy=policy, reason=reason)

    def resume(self, shard: int) -> Call[Suspension | None]:
        """Let tasks start again; the reply is what suspended them, None if nothing did."""
        return self._call("resume", shard, replies.suspension)

    # the kinds of workers with an App, in shard 0

    def publish_kinds(self, release: str, body: str = "") -> Call[bool]:
        """Note the kinds of a release of workers; without a body, renew it. False: its body is not stored."""
        times: dict[str, Argument] = {"keep_ms": KINDS_KEEP_MS, "rest_ms": KINDS_REST_MS}
        return self._call("publish_kinds", 0, bool, release=release, body=body, **times)

    def published_kinds(self, known: Iterable[str] = ()) -> Call[dict[str, str]]:
        """Return the kinds of each release whose workers live; empty text for the releases that are `known`."""
        return self._call("published_kinds", 0, replies.published, [*known])

    # shard map and migration

    def sync_shard_map(
        self, shard: int, shard_map: ShardMap | None = None, *, proposed: bool = False
    ) -> Call[ShardMapState]:
        """Store a shard map unless the shard has a newer one; None only reads.

        `proposed`: it is the next step after ours; shard 0 decides and assigns the epoch.
        """
        by = shard_map.known if shard_map else ""
        decode, proposes = replies.shard_map_state, int(proposed and shard_map is not None)
        return self._call("sync_shard_map", shard, decode, by=by, proposed=proposes)

    def retire_shard(self, shard: int) -> Call[ShardMapState]:
        """Store a shard map without this shard; if the shard is empty, delete all but the map and its counters."""
        return self._call("retire_shard", shard, replies.shard_map_state, by=self.shard_map.known)

    def scan(self, shard: int, cursor: str, *, count: int = BATCH) -> Call[ScanPage]:
        """Return a page of a shard's tasks in all states."""
        return self._known("scan", shard, replies.scan_page, cursor=cursor, count=count)

    def migrate_done(self, shard: int) -> Call[bool]:
        """Store that every task of a shard is at home; the reply is False while some migrate."""
        return self._known("migrate_done", shard, bool, epoch=self.shard_map.epoch)

    def migrate_out(self, shard: int, ids: Sequence[bytes], *, near_ms: int) -> Call[MigrationBatch]:
        """Start to migrate tasks whose home is another shard; those due within `near_ms` or in flight stay."""
        script, keys = scripts.load("migrate_out"), self.keys(shard)
        names = [raw.decode(errors="replace") for raw in ids]
        flat = [item for raw, name in zip(ids, names, strict=True) for item in (raw, self.shard_of(name))]
        named: dict[str, Argument] = {"by": self.shard_map.known, "near_ms": near_ms}
        arguments = script.bind(keys, flat, map(keys.of, names), **named)
        return Call(script, arguments, replies.at_home(replies.migration_batch), keys)

    def list_migrating(
        self, shard: int, *, task_id: str = "", after: int = 0, whole: bool = True
    ) -> Call[MigrationBatch]:
        """Return the migrating batch that contains a task, or the oldest after a token; not `whole`: targets only."""
        decode = replies.migration_batch
        return self._call("list_migrating", shard, decode, id=task_id, after=after, whole=int(whole))

    def migrate_in(
        self, shard: int, came_from: int, token: int, tasks: Sequence[MigratingTask]
    ) -> Call[int | BatchOutOfOrder]:
        """Store a migrated batch, idempotently; the reply is the number of new tasks, or BatchOutOfOrder."""
        flat = [argument for task in tasks for argument in task.arguments]
        return self._known("migrate_in", shard, replies.migrated_in, flat, shard=came_from, token=token)

    def migrate_retoken(self, shard: int, token: int, to: int, late: BatchOutOfOrder) -> Call[int]:
        """Give the part of a batch that shard `to` rejected as out of order a later token, if it is still here."""
        return self._call("migrate_retoken", shard, int, token=token, to=to, above=late.last)

    def migrate_verify(self, shard: int, came_from: int, token: int) -> Call[bool]:
        """Return whether the oldest migrating batch of a shard has arrived; older batches are rejected from now on."""
        return self._call("migrate_verify", shard, bool, shard=came_from, token=token)

    def migrate_commit(self, shard: int, token: int) -> Call[int]:
        """Delete the source's copy of a batch that all its targets have; the reply is its number of tasks."""
        return self._call("migrate_commit", shard, int, token=token)

    # locks; each expires

    def lock(
        self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[int]:
        """Take a lock, or confirm our own; the reply is 0, or the remaining ms of another owner's lock.

        `shard` is where the task was found; by default its home.
        """
        # `equal` may shorten a lock. For recovery that is safe: Redis rejects a verdict without its lock. For a guard
        # it is not. All workers use one duration for `isolation`.
        keys, equal = self._lock_keys(task_id, shard), int(lock != "lock")
        return self._call("lock", keys, int, lock=lock, owner=owner, ttl_ms=ttl_ms, equal=equal)

    def renew(
        self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[bool]:
        """Extend a lock; the reply is whether `owner` still had it. `shard` as for lock."""
        keys = self._lock_keys(task_id, shard)
        return self._call("renew", keys, bool, lock=lock, owner=owner, ttl_ms=ttl_ms)

    def unlock(
        self, task_id: str, owner: str, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[bool]:
        """Release a lock; the reply is whether `owner` still had it. `shard` as for lock."""
        return self._call("unlock", self._lock_keys(task_id, shard), bool, lock=lock, owner=owner)

    # dead letters

    def redrive(self, shard: int, letters: Sequence[Argument]) -> Call[int]:
        """Schedule dead letters again; `letters` is flat: id, delay ms."""
        return self._known("redrive", shard, int, letters)

    def purge(self, shard: int, ids: Sequence[str], *, before_ms: int | str = "inf") -> Call[int]:
        """Delete dead letters that died before `before_ms`."""
        return self._known("purge", shard, int, ids, before_ms=before_ms)


def _filters(chosen: Selection) -> dict[str, Argument]:
    return {
        "tag": chosen.tag or "",
        "kind": chosen.kind or "",
        "from_ms": "-inf" if chosen.due_from_ms is None else chosen.due_from_ms,
        "to_ms": "inf" if chosen.due_before_ms is None else chosen.due_before_ms,
    }


def _glob(task_id: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in task_id)

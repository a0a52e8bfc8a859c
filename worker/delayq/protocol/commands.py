"""One method per verb: each returns the Call that performs it. Nothing here waits; connection/ sends."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from delayq.protocol import replies, scripts
from delayq.protocol.alarm import Alarm
from delayq.protocol.keys import Keys
from delayq.protocol.quota import share
from delayq.protocol.results import INDEXES, UNRECORDED, Cancelled, ClampedLeases, Recovered, State
from delayq.protocol.shard_map import ShardMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delayq.contract import Limits
    from delayq.protocol.results import (
        BatchOutOfOrder,
        Claimed,
        Counts,
        Examined,
        Expired,
        Leadership,
        LostTask,
        MigratingTask,
        MigrationBatch,
        Rescheduled,
        RestoredOrphans,
        ScanPage,
        Settled,
        ShardMapState,
        TaskRow,
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
Rows: TypeAlias = "list[TaskRow]"
Pairs: TypeAlias = "list[tuple[str, str]]"
Lock: TypeAlias = Literal["lock", "recovery_lock", "isolation"]  # the last of a shard, others of a task

CLAIM_LIMIT = 250  # tasks a claim may lease: about a millisecond of Redis' time
BATCH = 250  # tasks any other call may carry
LEASES = 500  # leases that a call may look at: about a millisecond of Redis' time
# For a week after a queue was erased, clients that had used it are told so, and do not go by its shard map any more.
GONE_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script to run, and how to read its reply."""

    script: Script
    arguments: list[Argument]
    decode: Callable[[Any], T]
    keys: Keys  # of the shard it is about: in a Cluster, all of them are on one server


class Commands:
    """The verbs of one queue."""

    def __init__(
        self, queue: str, *, prefix: str = "delayq", shards: int = 1, limits: Limits | None = None
    ) -> None:
        """`shards` is how many sorted sets the queue is taken to be spread over, until Redis says how many.

        `limits` are those on what may begin; who never claims needs none.
        """
        self.queue, self._prefix, self._limits = queue, prefix, limits
        self._pinned: Commands | None = None  # see by()
        self.changed = Alarm()  # rung by follow(); a process' ServiceManager sleeps on it
        self._guess = ShardMap.guess(shards)
        self.follow(self._guess)

    def learn(self, shard_map: ShardMap | None) -> bool:
        """Go by a shard map if it is news; None says that the queue we knew was erased. Returns whether it was."""
        if shard_map is None:
            shard_map = self._guess
            news = self.shard_map.epoch > 0
        else:
            news = shard_map.newer(self.shard_map)
        if news:
            steps = {"now": shard_map.shards, "was": shard_map.was, "target": shard_map.target}
            log.info(
                "shard_map_changed",
                extra={"fields": {"queue": self.queue, "epoch": shard_map.epoch, **steps}},
            )
            self.follow(shard_map)
        return news

    def follow(self, shard_map: ShardMap) -> None:
        """Go by this shard map from now on. `shards` are all that it covers."""
        self.shard_map, self._pinned = shard_map, None
        self.shards = tuple(Keys(self._prefix, self.queue, shard) for shard in range(shard_map.covers))
        self.changed.ring()

    def by(self, shard_map: ShardMap) -> Commands:
        """Return the same queue by this shard map, whatever is followed meanwhile: for calls that belong together."""
        if shard_map is self.shard_map and self._pinned is not None:
            return self._pinned
        pinned = copy(self)
        pinned.shard_map = shard_map
        if shard_map.covers != len(self.shards):
            pinned.shards = tuple(map(self.keys, range(shard_map.covers)))
        if shard_map is self.shard_map:
            self._pinned = pinned
        return pinned

    def keys(self, shard: int) -> Keys:
        """Return the keys of any shard: what was leased of one that is no more is settled there all the same."""
        return self.shards[shard] if shard < len(self.shards) else Keys(self._prefix, self.queue, shard)

    def shard_of(self, task_id: str) -> int:
        """Return the shard a task is stored in from now on."""
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
        """`at` is a shard, or its keys with those of a task or a claimer."""
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
        """Say by which shard map we go. The answer may be ShardMapOutdated or TaskMigrating."""
        return self._call(verb, shard, replies.at_home(decode), rest, by=self.shard_map.known, **named)

    def _share(self, shard: int) -> dict[str, Argument]:
        return share(self._limits, shard, self.shard_map.sharing(shard))._asdict()

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

        `passing`: they belong to another shard by now, and are stored here only where they are here already.
        """
        options |= {"max_bytes": max_bytes, "passing": int(passing)}
        return self._known("schedule", shard, replies.stored, tasks, **options)

    def cancel(self, task_id: str, *, shard: int | None = None) -> Call[Cancelled]:
        """Forget a task that is not running. As for all calls about an id, `shard` is where, if not at its home."""
        return self._of_task("cancel", task_id, shard, replies.word(Cancelled))

    def reschedule(
        self, task_id: str, when: str, *, max_delay_ms: int, shard: int | None = None
    ) -> Call[Rescheduled]:
        """Move the due time of a task that is not running; `when` is "+delay" or an instant, in ms."""
        named: dict[str, Argument] = {"when": when, "max_delay_ms": max_delay_ms}
        return self._of_task("reschedule", task_id, shard, replies.rescheduled, **named)

    def get(self, task_id: str, *, shard: int | None = None) -> Call[TaskView | None]:
        """Return everything the queue knows of one task. With many leases, the answer may be Searching."""
        return self._search(task_id, shard, "0", again=True)

    def _search(self, task_id: str, shard: int | None, cursor: str, *, again: bool) -> Call[TaskView | None]:
        """Look at a page of leases. One that was settled and claimed anew meanwhile may have been missed: `again`."""

        def next_page(found: str | None) -> Call[TaskView | None] | None:
            if found is not None:
                return self._search(task_id, shard, found, again=again)
            return self._search(task_id, shard, "0", again=False) if again and cursor != "0" else None

        named: dict[str, Argument] = {"pattern": _glob(task_id) + ":*", "cursor": cursor, "count": LEASES}
        return self._of_task("get", task_id, shard, replies.view(task_id, next_page), **named)

    def list(self, shard: int, state: State, *, offset: int, limit: int) -> Call[Rows]:
        """Return one page of the tasks in a state, by score."""
        index, leased = INDEXES[state], int(state is State.IN_FLIGHT)
        decode = replies.rows(state)
        return self._call("list", shard, decode, index=index, offset=offset, limit=limit, leased=leased)

    def counts(
        self, shard: int, horizons_ms: Sequence[int] = (), instants_ms: Sequence[int] = ()
    ) -> Call[Counts]:
        """Count the tasks of one shard by state, and what falls due within each horizon and by each instant."""
        times: list[Argument] = [*(f"+{horizon}" for horizon in horizons_ms), *instants_ms]
        return self._call("counts", shard, replies.counts(horizons_ms, instants_ms), times)

    # leases

    def claim(self, shard: int, limit: int, lease_ms: int, *, ticket: Ticket = UNRECORDED) -> Call[Claimed]:
        """Lease up to `limit` due tasks, unless Redis gets to it after the claimer has abandoned this claim."""
        return self._claiming("claim", shard, ticket, limit=limit, lease_ms=lease_ms)

    def isolate(self, shard: int, limit: int, lease_ms: int, *, ticket: Ticket = UNRECORDED) -> Call[Claimed]:
        """Lease a group of suspects, at most `limit`, to a worker that runs nothing else; abandoned as a claim is."""
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
            **self._share(shard),
        )

    def unclaim(self, shard: int, claimer: str, number: int, lease_ms: int) -> Call[int]:
        """Put back the tasks of a claim whose reply was lost; answers with how many there were."""
        keys = self.keys(shard).claimed_by(claimer)
        return self._call("unclaim", keys, int, number=number, lease_ms=lease_ms)

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
        return self._call("wake", shard, replies.wait, **self._share(shard))

    def elect(self, shard: int, owner: str, lease_ms: int) -> Call[Leadership]:
        """Register as a scanner of a shard; lead it if it is our turn or it has no leader. 0 ms gives up both."""
        return self._call("elect", shard, replies.leadership, owner=owner, shard=shard, lease_ms=lease_ms)

    def reclaim(
        self, shard: int, *, max_crashes: int, limit: int = 100, before_ms: int | None = None
    ) -> Call[Pairs]:
        """Take back leases that ran out, before a time of Redis' clock if given; answers with member and outcome."""
        before = "" if before_ms is None else before_ms
        return self._call(
            "reclaim", shard, replies.pairs, limit=limit, max_crashes=max_crashes, before_ms=before
        )

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
        return self._call("recover", self.keys(shard).of(task_id), replies.word(Recovered), **named)

    def clamp_leases(self, shard: int, lease_ms: int, *, limit: int = BATCH) -> Call[ClampedLeases]:
        """Shorten leases that outlive their length, if Redis' clock stepped back; repeat until none is shortened."""
        return self._call("clamp_leases", shard, ClampedLeases._make, lease_ms=lease_ms, limit=limit)

    def reconcile(
        self, shard: int, index: str, cursor: int = -1, *, count: int = 50
    ) -> Call[replies.ReconciledPage]:
        """Hold a page of one index (a key's name) against the others; -1 goes on where anybody's last page ended."""
        hashes = {"tasks", "attempts", "dlq_info", "followups"}
        named = {"index": index, "name": index, "scan": "HSCAN" if index in hashes else "ZSCAN"}
        return self._call("reconcile", shard, replies.reconciled_page, **named, cursor=cursor, count=count)

    def audit_size(self, shard: int, *, count: int = 300) -> Call[replies.SizeAuditPage]:
        """Add up what a page of tasks weighs, and put the counter of bytes right after the last one."""
        return self._call("audit_size", shard, replies.size_audit_page, count=count)

    def restore_orphans(
        self, shard: int, lost: Sequence[LostTask], cursor: str = "0"
    ) -> Call[RestoredOrphans]:
        """Give tasks that are in no index, and not leased, a home again; to be repeated as its answer says."""
        flat = [item for task in lost for item in task]
        return self._call(
            "restore_orphans", shard, replies.restored_orphans, flat, cursor=cursor, count=LEASES
        )

    def erase(self, shard: int) -> Call[tuple[int, int]]:
        """Forget everything a shard holds; answers with how many keys and tasks that was."""
        return self._call("erase", shard, tuple, gone_ms=GONE_MS)

    # the shard map, and tasks that move

    def sync_shard_map(
        self, shard: int, shard_map: ShardMap | None = None, *, proposed: bool = False
    ) -> Call[ShardMapState]:
        """Tell a shard of a shard map, unless it knows a newer one; None only asks.

        `proposed`: it is what would follow the one that we know; shard 0 decides, and gives it its epoch.
        """
        by = shard_map.known if shard_map else ""
        decode, proposes = replies.shard_map_state, int(proposed and shard_map is not None)
        return self._call("sync_shard_map", shard, decode, by=by, proposed=proposes)

    def retire_shard(self, shard: int) -> Call[ShardMapState]:
        """Tell a shard of a shard map in which it is no more; if it is empty, all but that and its counters goes."""
        return self._call("retire_shard", shard, replies.shard_map_state, by=self.shard_map.known)

    def scan(self, shard: int, cursor: str, *, count: int = BATCH) -> Call[ScanPage]:
        """Return a page of a shard's tasks, in whatever state."""
        return self._known("scan", shard, replies.scan_page, cursor=cursor, count=count)

    def migrate_done(self, shard: int) -> Call[bool]:
        """Note that every task of a shard is at home; answers False while some are on their way."""
        return self._known("migrate_done", shard, bool, epoch=self.shard_map.epoch)

    def migrate_out(self, shard: int, ids: Sequence[bytes], *, near_ms: int) -> Call[MigrationBatch]:
        """Take tasks of another shard out of their index, unless they have to stay: for `near_ms`, or in flight."""
        script, keys = scripts.load("migrate_out"), self.keys(shard)
        names = [raw.decode(errors="replace") for raw in ids]
        flat = [item for raw, name in zip(ids, names, strict=True) for item in (raw, self.shard_of(name))]
        named: dict[str, Argument] = {"by": self.shard_map.known, "near_ms": near_ms}
        arguments = script.bind(keys, flat, map(keys.of, names), **named)
        return Call(script, arguments, replies.at_home(replies.migration_batch), keys)

    def list_migrating(
        self, shard: int, *, task_id: str = "", after: int = 0, whole: bool = True
    ) -> Call[MigrationBatch]:
        """Return the batch on its way of which a task is part, or the oldest after a token; or only where it goes."""
        decode = replies.migration_batch
        return self._call("list_migrating", shard, decode, id=task_id, after=after, whole=int(whole))

    def migrate_in(
        self, shard: int, came_from: int, token: int, tasks: Sequence[MigratingTask]
    ) -> Call[int | BatchOutOfOrder]:
        """Store a migrated batch unless it is stored already; answers with how many are new, or BatchOutOfOrder."""
        flat = [argument for task in tasks for argument in task.arguments]
        return self._known("migrate_in", shard, replies.migrated_in, flat, shard=came_from, token=token)

    def migrate_retoken(self, shard: int, token: int, to: int, late: BatchOutOfOrder) -> Call[int]:
        """Give what of a batch is on its way to a shard where it came too late a later token, if it is still here."""
        return self._call("migrate_retoken", shard, int, token=token, to=to, above=late.last)

    def migrate_verify(self, shard: int, came_from: int, token: int) -> Call[bool]:
        """Tell whether the oldest batch on its way from a shard has arrived, and let none before it arrive any more."""
        return self._call("migrate_verify", shard, bool, shard=came_from, token=token)

    def migrate_commit(self, shard: int, token: int) -> Call[int]:
        """Forget a batch that has landed everywhere; answers with how many tasks it was."""
        return self._call("migrate_commit", shard, int, token=token)

    # one task, held alone; every lock expires

    def lock(
        self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[int]:
        """Lock a task, or confirm our lock; answers with 0, or how many ms another's lock may last.

        `shard` is where the task was found; without it, where its id says it is.
        """
        # Should another document have asked for longer, recovery does no harm: a verdict without its lock is none.
        # A guard would. All ask for `isolation` for the same time.
        keys, equal = self._lock_keys(task_id, shard), int(lock != "lock")
        return self._call("lock", keys, int, lock=lock, owner=owner, ttl_ms=ttl_ms, equal=equal)

    def renew(
        self, task_id: str, owner: str, ttl_ms: int, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[bool]:
        """Hold a task for longer; answers whether it was held still. `shard` as for lock."""
        keys = self._lock_keys(task_id, shard)
        return self._call("renew", keys, bool, lock=lock, owner=owner, ttl_ms=ttl_ms)

    def unlock(
        self, task_id: str, owner: str, *, lock: Lock = "lock", shard: int | None = None
    ) -> Call[bool]:
        """Let others have a task; answers whether it was held still. `shard` as for lock."""
        return self._call("unlock", self._lock_keys(task_id, shard), bool, lock=lock, owner=owner)

    # dead letters

    def redrive(self, shard: int, letters: Sequence[Argument]) -> Call[int]:
        """Give dead letters a new life; `letters` is flat: id, delay ms."""
        return self._known("redrive", shard, int, letters)

    def purge(self, shard: int, ids: Sequence[str], *, before_ms: int | str = "inf") -> Call[int]:
        """Forget dead letters that died before `before_ms`."""
        return self._known("purge", shard, int, ids, before_ms=before_ms)


def _glob(task_id: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in task_id)

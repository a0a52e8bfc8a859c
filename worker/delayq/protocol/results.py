"""What calls on a queue answer with. Frozen, and nothing but facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.protocol.envelope import Task
    from delayq.protocol.shard_map import ShardMap


class State(StrEnum):
    """Where a task is; every accepted task is in exactly one of these, or done."""

    SCHEDULED = "scheduled"  # or due, and not claimed yet
    RETRYING = "retrying"  # an attempt failed: it runs again
    SUSPECT = "suspect"  # its lease expired: it runs again apart from healthy tasks
    IN_FLIGHT = "in_flight"
    DEAD = "dead"
    ORPHAN = "orphan"  # in no index: only a crash of Redis can leave this; the reaper repairs it


INDEXES: Final[Mapping[State, str]] = {
    State.SCHEDULED: "delayed",
    State.RETRYING: "retry",
    State.SUSPECT: "suspect",
    State.IN_FLIGHT: "processing",
    State.DEAD: "dlq",
}
"""State → the index in Redis that holds its tasks."""

STATE_OF: Final[Mapping[str, State]] = {
    **{index: state for state, index in INDEXES.items()},
    "orphan": State.ORPHAN,
}
"""What get.lua says → the state."""


class Outcome(StrEnum):
    """What became of one task in a call to schedule."""

    CREATED = "created"
    KEPT = "kept"  # if_exists="keep": the earlier one stands
    REPLACED = "replaced"
    REPEATED = "repeated"  # an earlier try had stored it though its reply was lost
    EXISTS = "exists"
    FOLLOWS = "follows"  # if_exists="replace": the task is in flight, and is replaced once it has ended
    FULL = "full"
    HEAVY = "heavy"  # there is room for another task, but not for its bytes
    TOO_FAR = "too_far"
    ELSEWHERE = "elsewhere"  # not here, and from now on to be stored at another shard; clients ask there
    MOVING = "moving"  # on its way to another shard; clients see to it that it arrives


class Settled(StrEnum):
    """What became of one lease. LEASE_LOST: the task has another lease or none; nothing was changed."""

    ACKED = "acked"
    RETRIED = "retried"
    BURIED = "buried"
    SUPERSEDED = "superseded"  # it would have been buried, but its follow-up took its place
    RELEASED = "released"
    LEASE_LOST = "lease_lost"


class Verdict(StrEnum):
    """What a check may answer when it is asked about a task whose lease ran out."""

    REQUEUE = "requeue"  # it still has to run
    COMPLETE = "complete"  # it has taken effect, or need not any more
    BURY = "bury"  # it needs manual work
    WAIT = "wait"  # not known yet: ask again later


class Recovered(StrEnum):
    """What became of one task whose lease ran out; the last three mean that nothing was done."""

    RECLAIMED = "reclaimed"
    COMPLETED = "completed"
    BURIED = "buried"
    SUPERSEDED = "superseded"  # it would have been buried, but its follow-up took its place
    WAITED = "waited"
    ORPHANS = "orphans"  # no such task: the lease was dropped
    GONE = "gone"  # settled meanwhile, or recovered by another process
    ALIVE = "alive"  # its worker woke up and extended the lease since it was examined
    LOCK_LOST = "lock_lost"  # asking took too long: another process may ask


class Cancelled(StrEnum):
    """What a call to cancel found."""

    CANCELLED = "cancelled"
    IN_FLIGHT = "in_flight"  # being handled: it will finish
    DEAD = "dead"  # a dead letter: purge it instead
    NOT_FOUND = "not_found"


class Scheduled(NamedTuple):
    """A stored task. `due_ms` is by Redis' clock; for a kept task it is what was asked, not what stands."""

    id: str
    due_ms: int
    outcome: Outcome = Outcome.CREATED


@dataclass(frozen=True, slots=True)
class ShardMapState:
    """What a shard knows of the shard map, and whether it is done with it."""

    shard_map: ShardMap | None  # None: it has none yet
    home_epoch: int  # of the shard map in which all its tasks were found to belong here
    tasks: int
    erased: int = 0  # it was, and refuses shard maps of this epoch and before


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A page of a shard's tasks. `cursor` is where to go on, "0" when there is no more."""

    cursor: str
    run: str  # of the server: its cursors mean nothing to another, and nothing after a restart
    tasks: int  # that the shard has
    ids: list[bytes]


@dataclass(frozen=True, slots=True)
class MigratingTask:
    """One task on its way, as it is stored: all that migrate_in.lua has to know of it."""

    to: int
    arguments: tuple[bytes, ...]  # id, index, score, envelope, attempts or empty, dlq info or empty


class BatchOutOfOrder(NamedTuple):
    """A batch came to a shard where a later one has landed."""

    last: int  # token that landed there


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """A batch of tasks that is on its way. Without tasks there was none."""

    token: int
    tasks: list[MigratingTask]
    stay: list[bytes] = field(default_factory=list)  # in flight, locked or due soon
    later: list[bytes] = field(default_factory=list)  # too much for one batch

    def by_shard(self) -> dict[int, list[MigratingTask]]:
        """Return what goes to each shard."""
        found: dict[int, list[MigratingTask]] = {}
        for task in self.tasks:
            found.setdefault(task.to, []).append(task)
        return found


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Whether a task was moved, and to when."""

    outcome: str  # rescheduled, or why not: too_far, in_flight, dead, not_found
    due_ms: int


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a task failed and crashed, and the last error."""

    failures: int = 0
    crashes: int = 0
    reason: str = ""  # for a dead letter: attempts, crashes, buried or recovered
    error: str = ""


@dataclass(frozen=True, slots=True)
class TaskView:
    """Everything the queue knows of one task."""

    id: str
    state: State
    at_ms: int  # due time, begin of a suspect's last run, lease expiry or time of death, as the state has it
    scheduled_ms: int
    body: bytes
    content_type: str
    headers: Mapping[str, str]
    failed: Failures
    token: int | None = None  # of the current lease
    follow_up_due_ms: int | None = None  # of what takes its place once it has ended


@dataclass(frozen=True, slots=True)
class Searching:
    """An answer that is not known yet: the shard has more leases than a call may look at."""

    next: Any  # the Call that looks at the next page


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of a listing."""

    id: str
    state: State
    at_ms: int
    size: int  # bytes of the envelope
    failed: Failures


class LostTask(NamedTuple):
    """A task that was in no index, and what the last page of leases said of it."""

    id: bytes
    trace: bytes = b""


@dataclass(frozen=True, slots=True)
class RestoredOrphans:
    """After one page of leases: which tasks may still be lost, and which were, and have an index again."""

    cursor: str  # "0": this was the last page
    left: list[LostTask]
    ids: list[bytes]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tasks are in each state: a task is scheduled, retrying, due, in flight or dead."""

    now_ms: int
    scheduled: int  # for later, never tried
    retrying: int  # for later, after an attempt that failed
    due: int  # and not claimed
    in_flight: int
    dead: int
    oldest_due_ms: int | None  # the earliest due time, in the past or not
    next_due_ms: int | None  # the first due time after now
    due_within: Mapping[int, int] = field(default_factory=dict)  # horizon ms to tasks
    due_by: Mapping[int, int] = field(
        default_factory=dict
    )  # instant, Unix ms, to tasks that fall due until then
    stats: Mapping[str, int] = field(default_factory=dict)
    lapsed: int = 0  # of those in flight: the lease expired, and recovery has not decided yet
    bytes: int = 0  # ids and envelopes of all tasks, dead letters included
    format: int = 1  # of the keys, see keys.FORMAT; the newest of several shards
    suspect: int = 0  # of those due: the lease expired, and they run again apart from healthy ones

    @property
    def waiting(self) -> int:
        """Tasks that are neither in flight nor dead."""
        return self.scheduled + self.retrying + self.due

    @property
    def late_ms(self) -> int:
        """For how long the oldest due task has been due; 0 when none is."""
        return max(0, self.now_ms - self.oldest_due_ms) if self.due and self.oldest_due_ms is not None else 0


@dataclass(slots=True, eq=False)
class Lease:
    """One claimed task and the name under which its lease is held."""

    task: Task
    shard: int
    member: bytes  # as Redis has it: an id that is not UTF-8 can still be settled
    failures: int = 0  # charged before this run; unlike task.attempt without crashes


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim brought. `unreadable` are leases whose envelope could not be decoded, with the reason.

    `held`: a limit of the queue kept due tasks back; not to be asked again for `room_seconds`, or until one ends.
    `abandoned`: Redis got to the claim too late, and took no task.
    """

    now_ms: int
    leases: list[Lease]
    more: bool
    unreadable: list[tuple[Lease, Exception]]
    held: bool = False
    room_seconds: float | None = None
    abandoned: bool = False
    suspects: int = 0  # that wait to run apart from healthy tasks


class Ticket(NamedTuple):
    """What a claim carries so that Redis can tell an abandoned one, and its claimer can find its leases again."""

    claimer: str
    number: int  # rises with each claim of the claimer; 0: no record is kept
    not_after_ms: int | str  # of Redis' clock


UNRECORDED = Ticket("", 0, "inf")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A task with an expired lease that cannot be passed to a check."""

    why: str


@dataclass(frozen=True, slots=True)
class Examined:
    """A lease that ran out: its task, and when it did; minus until when it was put off, if it was."""

    task: Task | Unreadable
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """One page of leases that ran out, as Redis has them, and when the next will; None when none is left."""

    members: list[bytes]
    next_seconds: float | None


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a scanner may sleep on one shard; None when there is nothing to wait for."""

    now_ms: int
    due: bool  # and may begin
    untaken: bool  # an earlier hint still lies there: every worker is busy, or none lives
    next_due_seconds: float | None  # due times after now
    next_expiry_seconds: float | None
    held: bool = False  # something is due, but a limit of the queue keeps it back
    room_seconds: float | None = None  # for how long; None: until another one ends


@dataclass(frozen=True, slots=True)
class Leadership:
    """Whether this scanner leads a shard, or how long another one does."""

    leads: bool
    others_ms: int
    stepped_back_ms: int
    again_ms: (
        int  # after which it is worth asking again: a scanner counts as gone, or is about to take its turn
    )


class ClampedLeases(NamedTuple):
    """By how much Redis' clock stepped back, if it did, and how many leases one call shortened for that."""

    stepped_back_ms: int
    shortened: int


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead letters that died of the same error, but for numbers and names in it; `error` is the latest's."""

    error: str
    count: int
    last_ms: int
    ids: tuple[str, ...]

"""The results of calls on a queue: frozen data, and values that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.protocol.envelope import decoded
from delayq.protocol.instants import instant
from delayq.protocol.keys import FORMAT

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task
    from delayq.protocol.shard_map import ShardMap


class State(StrEnum):
    """The state of a task; every accepted task is in exactly one, or has ended."""

    SCHEDULED = "scheduled"
    """It waits for its due time, or for a worker."""
    RETRYING = "retrying"
    """An attempt failed: it runs again."""
    SUSPECT = "suspect"
    """Its lease expired: it runs again, isolated from healthy tasks."""
    IN_FLIGHT = "in_flight"
    PARKED = "parked"
    """It waits for a worker that has its kind and version."""
    DEAD = "dead"
    ORPHAN = "orphan"
    """In no index, after a crash of Redis; the reaper repairs it."""
    DONE = "done"
    """It does not exist any more, and is in the history of spec.retention.finished."""


WAITING: Final = frozenset({State.SCHEDULED, State.RETRYING, State.SUSPECT, State.PARKED})
"""The states of tasks that wait: those that can be cancelled and rescheduled."""

INDEXES: Final[Mapping[State, str]] = {
    State.SCHEDULED: "delayed",
    State.RETRYING: "retry",
    State.SUSPECT: "suspect",
    State.IN_FLIGHT: "processing",
    State.PARKED: "parked",
    State.DEAD: "dlq",
}
"""State → the index in Redis that holds its tasks."""

STATE_OF: Final[Mapping[str, State]] = {
    **{index: state for state, index in INDEXES.items()},
    "orphan": State.ORPHAN,
    "done": State.DONE,
}
"""The state's name in get.lua's reply → the state."""


HAS_DUE: Final = WAITING - {State.SUSPECT}
"""The states in which a task has a due time."""


class Outcome(StrEnum):
    """The result of `schedule` for one task."""

    CREATED = "created"
    KEPT = "kept"
    """With if_exists="keep": the existing task is unchanged."""
    REPLACED = "replaced"
    REPEATED = "repeated"
    """An earlier call stored it, and its reply was lost."""
    EXISTS = "exists"
    FOLLOWS = "follows"
    """With if_exists="replace" of a task in flight: stored as its follow-up."""
    FULL = "full"
    HEAVY = "heavy"
    """The shard is full: limits.maxLength allows another task, limits.maxBytes does not."""
    TOO_FAR = "too_far"
    ELSEWHERE = "elsewhere"
    """It is not in this shard; clients store it in its home."""
    MOVING = "moving"
    """It migrates; clients complete the migration first."""


class Settled(StrEnum):
    """The result of a settlement. LEASE_LOST: the task has another lease or none; nothing changed."""

    ACKED = "acked"
    RETRIED = "retried"
    BURIED = "buried"
    SUPERSEDED = "superseded"  # it would have been buried, but its follow-up took its place
    RELEASED = "released"
    PARKED = "parked"  # no worker has run it: its kind or version is unknown here
    CANCELLED = (
        "cancelled"  # cancel(running=True) asked for it: the task is deleted, or its follow-up took its place
    )
    LEASE_LOST = "lease_lost"


class Verdict(StrEnum):
    """A check's answer about a task whose lease expired."""

    REQUEUE = "requeue"
    """The task still has to run."""
    COMPLETE = "complete"
    """The task has taken effect, or is obsolete."""
    BURY = "bury"
    """The task becomes a dead letter: it needs manual work."""
    WAIT = "wait"
    """The outcome is unknown: repeat the check later."""


class Recovered(StrEnum):
    """The result of a recovery; the last three mean that nothing changed."""

    RECLAIMED = "reclaimed"
    COMPLETED = "completed"
    BURIED = "buried"
    SUPERSEDED = "superseded"  # it would have been buried, but its follow-up took its place
    WAITED = "waited"
    CANCELLED = "cancelled"  # cancel(running=True) asked for it
    ORPHANS = "orphans"  # the lease had no task: it was dropped
    GONE = "gone"  # settled meanwhile, or recovered by another process
    ALIVE = "alive"  # its worker has extended the lease meanwhile
    LOCK_LOST = "lock_lost"  # the check took longer than the recovery lock


class Cancelled(StrEnum):
    """The result of `cancel`."""

    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    """With running=True: its handler runs, and its worker is asked to cancel it; its follow-up is deleted."""
    FOLLOW_UP_CANCELLED = "follow_up_cancelled"
    """Its handler runs; its follow-up is deleted."""
    IN_FLIGHT = "in_flight"
    """Its handler runs, and it has no follow-up."""
    DEAD = "dead"
    """It is a dead letter: purge it instead."""
    NOT_FOUND = "not_found"


class Scheduled(NamedTuple):
    """A stored task.

    `due_ms` is the due time that is stored, by Redis' clock. A kept task has its own, not that of the call: if it is in
    flight, dead or finished, one in the past. With if_exists="debounce", it is at most the latest one.
    """

    id: str
    """The ID as it is stored: KIND:ID for a task with a kind."""
    due_ms: int
    """The due time that is stored, Unix ms."""
    outcome: Outcome = Outcome.CREATED
    """What became of the call: created, kept, replaced, follows or repeated."""

    @property
    def due(self) -> datetime:
        """`due_ms` as a datetime in UTC."""
        return instant(self.due_ms)


@dataclass(frozen=True, slots=True)
class Suspension:
    """A queue whose tasks `delayq suspend` stopped."""

    since_ms: int
    drain: bool = False
    """The operator removes the workers, too."""
    reason: str = ""
    """The reason that the user gave; empty without one."""


@dataclass(frozen=True, slots=True)
class ShardMapState:
    """A shard's copy of the shard map, and its progress under it."""

    shard_map: ShardMap | None  # None: the shard has none
    home_epoch: int  # of the shard map under which a full scan found all its tasks at home
    tasks: int
    erased: int = 0  # epoch of the erase: the shard refuses shard maps up to it; 0: not erased
    suspension: Suspension | None = None  # of the queue; of other shards than 0, a copy


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A page of a shard's tasks. `cursor` is that of the next page, "0" after the last."""

    cursor: str
    run: str  # ID of the server's run: a cursor is valid only within it
    tasks: int  # in the shard
    ids: list[bytes]


@dataclass(frozen=True, slots=True)
class MigratingTask:
    """One migrating task as it is stored, for migrate_in.lua."""

    to: int
    arguments: tuple[bytes, ...]  # id, index, score, envelope, attempts or empty, dlq info or empty


class BatchOutOfOrder(NamedTuple):
    """A batch arrived at a shard that has verified a later one."""

    last: int  # token of the last verified batch


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """A batch of migrating tasks; without tasks there is none."""

    token: int
    tasks: list[MigratingTask]
    stay: list[bytes] = field(default_factory=list)  # in flight, locked or due soon
    later: list[bytes] = field(default_factory=list)  # too large for this batch

    def by_shard(self) -> dict[int, list[MigratingTask]]:
        """Return the tasks of each target shard."""
        found: dict[int, list[MigratingTask]] = {}
        for task in self.tasks:
            found.setdefault(task.to, []).append(task)
        return found


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The result of `reschedule`."""

    outcome: str
    """rescheduled, or why not: changed, too_far, in_flight, dead, not_found."""
    due_ms: int
    """The new due time, Unix ms, if the task was rescheduled."""

    @property
    def due(self) -> datetime | None:
        """`due_ms` as a datetime in UTC; None unless the due time was changed."""
        return instant(self.due_ms) if self.outcome == "rescheduled" else None


class Selection(NamedTuple):
    """Which tasks a bulk operation is about: those that have all that is given."""

    tag: str | None = None
    kind: str | None = None
    due_from_ms: int | None = None
    due_before_ms: int | None = None


class Position(NamedTuple):
    """A place in the list of a state, between two tasks: Redis sorts an index by score, then by member."""

    score: float
    member: bytes


class ListPage(NamedTuple):
    """A page of the list of a state in one shard."""

    rows: dict[Position, TaskRow]
    after: Position | None  # where to go on; None: no more follow


class Page(NamedTuple):
    """A page of the tasks in a state."""

    rows: list[TaskRow]
    after: Position | None
    """Where the next page begins, for `after`; None after the last one."""


class Bulk(NamedTuple):
    """The numbers of a bulk operation, so far or at its end: tasks done, and selected ones that it left alone."""

    tasks: int = 0
    """Tasks that waited, and were counted, cancelled or rescheduled."""
    follow_ups: int = 0
    """Follow-ups of tasks in flight or retrying that were counted, cancelled or rescheduled."""
    in_flight: int = 0
    """Tasks in flight, which were left alone."""
    dead: int = 0
    """Dead letters, which were left alone."""
    too_far: int = 0
    """Tasks that were left alone, because their due time would be beyond limits.maxDelaySeconds."""


class BulkPage(NamedTuple):
    """A page of a bulk operation in one shard."""

    cursor: bytes  # of the next page; empty after the last one
    found: Bulk
    migrating: list[bytes]  # ids that were skipped
    listed: list[tuple[str, int]]  # id and due ms


@dataclass(frozen=True, slots=True)
class Failures:
    """A task's failures, crashes and last error."""

    failures: int = 0
    crashes: int = 0
    reason: str = ""
    """For a dead letter: attempts, crashes, buried, recovered or expired."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TaskView:
    """Everything that is stored about one task. Of a task that is done, no content is stored.

    Names that end in `_ms` are in milliseconds, by Redis' clock; those without are datetimes in UTC.
    """

    id: str
    state: State
    at_ms: int
    """An instant that depends on the state, see State: due time, end of the lease, time of death or of the end."""
    scheduled_ms: int
    """For a task that is done, the due time of its last run."""
    body: bytes
    content_type: str
    headers: Mapping[str, str]
    failed: Failures
    token: int | None = None
    """The fencing token of the current lease; None without one."""
    follow_up_due_ms: int | None = None
    """The due time of its follow-up; None without one."""
    kind: str = ""
    """The name of its kind; empty for a task without one."""
    kind_version: int = 0
    deadline_ms: int | None = None
    """How long after `scheduled_ms` the task may be claimed; None without a deadline."""
    tags: tuple[str, ...] = ()
    attempts: int | None = None
    """How many attempts a task took that is done; otherwise None."""
    late_ms: int | None = None
    """How long after its due time the last run of a task started, if the task is done; otherwise None."""
    cancelling: bool = False
    """It is in flight, and `cancel(running=True)` has asked its worker to cancel the run."""

    @property
    def payload(self) -> Any:  # noqa: ANN401 -- any JSON value
        """What was scheduled, as Task.payload: a JSON value, or bytes; None of a task that is done.

        ValueError if another program stored text that is not JSON; `body` has its bytes.
        """
        return None if self.state is State.DONE else decoded(self.body, self.content_type)

    @property
    def at(self) -> datetime:
        """`at_ms` as a datetime: its meaning depends on the state."""
        return instant(self.at_ms)

    @property
    def due_ms(self) -> int | None:
        """When the next run is due; None while the task does not wait: suspect, in flight, dead or done."""
        return self.at_ms if self.state in HAS_DUE else None

    @property
    def due(self) -> datetime | None:
        """When the next run is due; None while the task does not wait."""
        return instant(self.due_ms)

    @property
    def scheduled(self) -> datetime:
        """The due time the task was scheduled for; for a task that is done, the due time of its last run."""
        return instant(self.scheduled_ms)

    @property
    def follow_up_due(self) -> datetime | None:
        """The due time of its follow-up; None without one."""
        return instant(self.follow_up_due_ms)

    @property
    def finished_ms(self) -> int | None:
        """When the task was done, by Redis' clock; None while it is not."""
        return self.at_ms if self.state is State.DONE else None

    @property
    def finished(self) -> datetime | None:
        """When the task was done; None while it is not."""
        return instant(self.finished_ms)

    @property
    def expires_ms(self) -> int | None:
        """The last ms, by Redis' clock, in which the task may be claimed; None without a deadline."""
        return None if self.deadline_ms is None else self.scheduled_ms + self.deadline_ms

    @property
    def expires(self) -> datetime | None:
        """The last instant in which the task may be claimed; None without a deadline."""
        return instant(self.expires_ms)


@dataclass(frozen=True, slots=True)
class Searching:
    """No result yet: the shard has more leases than one call reads."""

    next: Any  # the Call that reads the next page


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of a listing."""

    id: str
    state: State
    at_ms: int
    size: int
    """The size of the envelope in bytes."""
    failed: Failures
    kind: str = ""
    """The name of its kind; empty for a task without one."""
    kind_version: int = 0

    @property
    def at(self) -> datetime:
        """`at_ms` as a datetime in UTC."""
        return instant(self.at_ms)


class LostTask(NamedTuple):
    """A task in no index, and its trace from the previous page of leases (restore_orphans.lua)."""

    id: bytes
    trace: bytes = b""


@dataclass(frozen=True, slots=True)
class RestoredOrphans:
    """After one page of leases: tasks that may still be orphans, and orphans that are indexed again."""

    cursor: str  # "0": this was the last page
    left: list[LostTask]
    ids: list[bytes]


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of tasks by state: scheduled, retrying, due, in flight or dead."""

    now_ms: int
    scheduled: int
    """Tasks that are not due, and were not attempted."""
    retrying: int
    """Tasks that are not due, after a failed attempt."""
    due: int
    """Tasks that are due and not claimed."""
    in_flight: int
    dead: int
    oldest_due_ms: int | None
    """The earliest due time, in the past or not; None if no task waits."""
    next_due_ms: int | None
    """The first due time after now; None without one."""
    due_within: Mapping[Any, int] = field(default_factory=dict)
    """Each horizon, as it was given → the number of tasks that fall due within it."""
    due_by: Mapping[Any, int] = field(default_factory=dict)
    """Each instant, as it was given → the number of tasks due by then."""
    stats: Mapping[str, int] = field(default_factory=dict)
    lapsed: int = 0
    """Tasks in flight whose lease expired and is not recovered."""
    bytes: int = 0
    """The size of IDs and envelopes of all tasks, dead letters included."""
    history_bytes: int = 0
    """About the memory of the history of finished tasks; 0: it is empty."""
    format: int = FORMAT
    """The format of the keys; of several shards, the first other one."""
    suspect: int = 0
    """Suspects among the tasks that are due."""
    parked: int = 0
    """Tasks whose kind or version no worker knew; they are in no other number."""
    suspension: Suspension | None = None
    """What `delayq suspend` has stopped, as the first of these shards has it; None if nothing."""

    @property
    def now(self) -> datetime:
        """`now_ms`, Redis' time, as a datetime in UTC."""
        return instant(self.now_ms)

    @property
    def oldest_due(self) -> datetime | None:
        """The earliest due time, in the past or not; None without a waiting task."""
        return instant(self.oldest_due_ms)

    @property
    def next_due(self) -> datetime | None:
        """The first due time after now; None without one."""
        return instant(self.next_due_ms)

    @property
    def waiting(self) -> int:
        """Tasks that are neither in flight nor dead."""
        return self.scheduled + self.retrying + self.due

    @property
    def late_ms(self) -> int:
        """The lateness of the oldest due task, 0 without any."""
        return max(0, self.now_ms - self.oldest_due_ms) if self.due and self.oldest_due_ms is not None else 0


@dataclass(slots=True, eq=False)
class Lease:
    """One claimed task and the name of its lease."""

    task: Task
    shard: int
    member: bytes  # raw, so that an id that is not UTF-8 can be settled
    failures: int = 0  # charged before this run; task.attempt also counts crashes
    entry: bytes = b""  # of `attempts`, with the last error; empty for a task that was not retried
    run_before: bytes = b""  # that the record of its schedule named, for park.lua


class Leases(NamedTuple):
    """The tasks of one claim. `unreadable` are leases whose envelope cannot be decoded, with the reason."""

    readable: list[Lease]
    unreadable: list[tuple[Lease, Exception]]


def _no_leases() -> Leases:
    return Leases([], [])


@dataclass(slots=True)
class Claimed:
    """The result of one claim. The tasks are decoded on first use: the worker may send the next claim before.

    To freeze it would slow every claim.

    `held`: a limit holds due tasks back for `room_seconds`, or if that is None until a running task ends.
    `abandoned`: Redis executed the claim after its deadline and leased nothing.
    """

    now_ms: int
    tasks: int = 0  # that were leased
    more: bool = False
    held: bool = False
    room_seconds: float | None = None
    abandoned: bool = False
    suspects: int = 0  # waiting in the shard
    decode: Callable[[], Leases] = field(default=_no_leases, repr=False, compare=False)
    _decoded: Leases | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def leases(self) -> list[Lease]:
        """The tasks that can be decoded."""
        return self.decoded().readable

    @property
    def unreadable(self) -> list[tuple[Lease, Exception]]:
        """The others."""
        return self.decoded().unreadable

    def decoded(self) -> Leases:
        """Return both."""
        if self._decoded is None:
            self._decoded = self.decode()
        return self._decoded


class Ticket(NamedTuple):
    """A claim's deadline, and the identity with which its claimer can return its leases."""

    claimer: str
    number: int  # increases with each claim of the claimer; 0: no record is kept
    not_after_ms: int | str  # of Redis' clock


UNRECORDED = Ticket("", 0, "inf")


class Extended(NamedTuple):
    """The result of an extension: positions of its leases."""

    lost: set[int]
    cancelled: set[int]  # extended, so that the worker can cancel their runs


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A task with an expired lease that cannot be passed to a check."""

    why: str


@dataclass(frozen=True, slots=True)
class Examined:
    """An expired lease: its task and its expiry; for a deferred lease, minus the time until which it waits."""

    task: Task | Unreadable
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """One page of expired leases, raw, and the seconds until the next expiry; None without another lease."""

    members: list[bytes]
    next_seconds: float | None


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a scanner may sleep on one shard; None: no such event is known."""

    now_ms: int
    due: bool  # and may start
    untaken: bool  # the previous wake token is still there: no worker is free
    next_due_seconds: float | None  # due times after now
    next_expiry_seconds: float | None
    held: bool = False  # a limit holds due tasks back
    room_seconds: float | None = None  # for how long; None: until a running task ends
    expiry_seconds: float | None = None  # until a task may have missed its deadline
    look_seconds: float | None = None  # until the scanner has to look at a schedule


class ScheduleWritten(NamedTuple):
    """The result of writing or deleting a schedule."""

    outcome: str  # created, updated, unchanged, deleting, not_found, full, heavy or owned
    version: int
    owner: str


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """The record of a schedule in Redis. Times are Unix times, ms."""

    id: str  # @NAME
    body: bytes  # the definition, see delayq.schedules.record
    version: int  # of the definition, increasing
    phase: str  # on; clearing while occurrences of an older definition are removed; deleting
    owner: str
    cursor_ms: int  # the nominal time up to which occurrences were created
    missed: int = 0  # occurrences that could not begin in time
    skipped: int = 0  # those that did not begin because another one ran
    last_id: str | None = None  # the occurrence that began last
    last_began_ms: int | None = None
    last_late_ms: int | None = None

    @property
    def name(self) -> str:
        """The name of the DelaySchedule."""
        return self.id[1:]


class SchedulePage(NamedTuple):
    """A page of records: Redis' time, how many entries it has, those that can be read, and how many the shard has."""

    now_ms: int
    entries: int
    records: list[ScheduleRecord]
    schedules: int


@dataclass(frozen=True, slots=True)
class Leadership:
    """Whether this scanner leads a shard, or the remaining ms of another leader's lease."""

    leads: bool
    others_ms: int
    stepped_back_ms: int
    again_ms: (
        int  # until the election may have another result: a scanner expires, or leadership is handed over
    )
    others: tuple[str, ...] = ()  # UIDs of other DelayQueues whose scanners serve the queue


class Erased(NamedTuple):
    """The numbers of keys and tasks of a shard; `other`: the DelayQueue because of which nothing was deleted."""

    keys: int
    tasks: int
    other: str = ""


class ClampedLeases(NamedTuple):
    """By how much Redis' clock stepped back (0: it did not), and how many leases the call shortened."""

    stepped_back_ms: int
    shortened: int


@dataclass(frozen=True, slots=True)
class ParkedKind:
    """The parked tasks of one kind and version."""

    kind: str  # "" for tasks without a kind
    version: int
    tasks: int
    oldest_due_ms: int


def combined(found: Iterable[ParkedKind]) -> list[ParkedKind]:
    """Add up the parked tasks of several shards; the kinds with the most tasks first."""
    by_kind: dict[tuple[str, int], ParkedKind] = {}
    for each in found:
        same = by_kind.get((each.kind, each.version), each)
        tasks = each.tasks if same is each else each.tasks + same.tasks
        oldest_ms = min(each.oldest_due_ms, same.oldest_due_ms)
        by_kind[each.kind, each.version] = ParkedKind(each.kind, each.version, tasks, oldest_ms)
    return sorted(by_kind.values(), key=lambda each: (-each.tasks, each.kind, each.version))


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead letters of one kind with the same error, ignoring numbers and names in it; `error` is the latest one's."""

    error: str
    count: int
    last_ms: int
    ids: tuple[str, ...]
    kind: str = ""

    @property
    def last(self) -> datetime:
        """When the latest one died, in UTC."""
        return instant(self.last_ms)

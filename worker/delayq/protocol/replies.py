"""Decoders of the scripts' replies: bytes, integers and lists in, values out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.errors import EnvelopeError
from delayq.protocol.envelope import BYTES_TYPE, Envelope, Occurrence, Task, decode
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import (
    STATE_OF,
    BatchOutOfOrder,
    Bulk,
    BulkPage,
    Claimed,
    Counts,
    Erased,
    Examined,
    Expired,
    Extended,
    Failures,
    Leadership,
    Lease,
    Leases,
    ListPage,
    LostTask,
    MigratingTask,
    MigrationBatch,
    Outcome,
    ParkedKind,
    Position,
    Rescheduled,
    RestoredOrphans,
    ScanPage,
    SchedulePage,
    ScheduleRecord,
    ScheduleWritten,
    Searching,
    Settled,
    ShardMapState,
    State,
    Suspension,
    TaskRow,
    TaskView,
    Unreadable,
    Wait,
)
from delayq.protocol.shard_map import ShardMap, ShardMapOutdated, TaskMigrating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
MOST_SCORE = 2.0**63

_NO_COUNTERS = (
    "token",
    "largest",
    "bytes",
    "bytes_in",
    "format",
    "finished_bytes",
    "blocked_at",
    "cancelling",
)  # of `stats`
_FINISHED = re.compile(rb"(\d{1,15}) (\d{1,15}) (\d{1,15}) ")
# As SCHEDULE in prelude/schedules.lua.
_SCHEDULE = re.compile(rb"0 0 (\d+) (\w+) (\S+) (\d+) (\d+) (\d+) (\S+) (\d+) (\d+)")
_COUNTED = re.compile(rb"(\d{1,15}) (\d{1,15}) (?:@\d{1,16} )?(?:~\d{1,16}:\d{1,16}:\d{1,16} )?")


@dataclass(frozen=True, slots=True)
class Stored:
    """schedule.lua's reply: Redis' time, the number of due times in the past, and outcomes except `created`.

    `due_ms` has the stored due times that may differ from those of the call.
    """

    now_ms: int
    clamped: int
    notes: dict[int, Outcome]
    due_ms: dict[int, int]


@dataclass(frozen=True, slots=True)
class ReconciledPage:
    """A page of reconciliation: the next cursor (0 when done), repaired tasks with outcomes, and possible orphans."""

    cursor: int
    tasks: list[tuple[str, str]]
    homeless: list[bytes]  # leased, or in no index at all


@dataclass(frozen=True, slots=True)
class SizeAuditPage:
    """A page of the size audit: the next cursor (0 when done), and by how much the counter of bytes was wrong."""

    cursor: int
    off: int


def word(kind: Callable[[str], T]) -> Callable[[bytes], T]:
    """Return the decoder of a one-word reply."""
    return lambda reply: kind(reply.decode())


def stored(reply: list[Any]) -> Stored:
    """Decode schedule.lua's reply."""
    now_ms, clamped, notes = reply
    outcomes = dict(zip(notes[::3], [Outcome(name.decode()) for name in notes[1::3]], strict=True))
    due_ms = dict(zip(notes[::3], notes[2::3], strict=True))
    return Stored(now_ms, clamped, outcomes, due_ms)


def shard_map_state(reply: list[Any]) -> ShardMapState:
    """Decode sync_shard_map.lua's reply."""
    known, home_epoch, tasks, *suspended = reply
    erased = int(known) if known.isdigit() else 0
    return ShardMapState(_shard_map(known), home_epoch, tasks, erased, suspension(*suspended))


def published(reply: list[list[bytes]]) -> dict[str, str]:
    """Decode published_kinds.lua: release to its kinds. Another program may have written anything."""
    return {release.decode(errors="replace"): body.decode(errors="replace") for release, body in reply}


def suspension(stored: bytes | None = None) -> Suspension | None:
    """Decode what suspend.lua stored. Any other text suspends the queue, too: `delayq resume` removes it."""
    if stored is None:
        return None
    since, policy, reason = (*stored.decode(errors="replace").split(" ", 2), "", "")[:3]
    return Suspension(int(since) if re.fullmatch("[0-9]{1,15}", since) else 0, policy == "Drain", reason)


def _shard_map(known: bytes) -> ShardMap | None:
    """Parse a shard's shard map; None when it has none, or only the epoch of an erase."""
    return ShardMap.parse(known.decode()) if b" " in known else None


def migrated_in(reply: int | bytes) -> int | BatchOutOfOrder:
    """Decode migrate_in.lua's reply."""
    return BatchOutOfOrder(int(reply.split()[1])) if isinstance(reply, bytes) else reply


def scan_page(reply: list[Any]) -> ScanPage:
    """Decode scan.lua's reply."""
    cursor, run, tasks, found = reply
    return ScanPage(cursor.decode(), run.decode(), tasks, found)


def migration_batch(reply: list[Any]) -> MigrationBatch:
    """Decode the reply of migrate_out.lua or list_migrating.lua."""
    token, tasks, *left = reply
    return MigrationBatch(
        int(token), [MigratingTask(int(to), (name, *rest)) for name, to, *rest in tasks], *left
    )


def at_home(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a decoder for calls that carry a shard map: raises ShardMapOutdated and TaskMigrating."""

    def read(reply: Any) -> T:  # noqa: ANN401 -- the script's raw reply
        word, _, rest = reply.partition(b" ") if isinstance(reply, bytes) else (b"", b"", b"")
        if word == b"STALELAYOUT":
            raise ShardMapOutdated(_shard_map(rest))
        if word == b"MOVING":
            raise TaskMigrating(rest.decode(errors="replace"))
        return decode(reply)

    return read


def rescheduled(reply: list[Any]) -> Rescheduled:
    """Decode reschedule.lua's reply."""
    return Rescheduled(reply[0].decode(), int(reply[1]))


def claimed(queue: str, shard: int) -> Callable[[list[Any]], Claimed]:
    """Return the decoder of claim.lua's reply for one shard."""

    def read(reply: list[Any]) -> Claimed:
        if len(reply) == 1:
            return Claimed(reply[0], abandoned=True)
        now_ms, first, more, room_us, ids, dues, envelopes, counts, suspects, *further = reply
        token = int(first)
        tasks = range(token, token + len(ids)), ids, dues, envelopes
        retried = _by_token(token, counts)
        before = _by_token(token, further[0]) if further else {}
        return Claimed(
            now_ms,
            len(ids) - envelopes.count(None),  # None: an orphan, which the script dropped
            bool(more),
            *_held(room_us),
            suspects=suspects,
            decode=partial(_leases, queue, shard, tasks, retried, before=before),
        )

    return read


def _by_token(first: int, found: list[Any]) -> dict[int, bytes]:
    """Return what a claim says of some of its tasks, a flat list of positions and entries."""
    return {first + at: entry for at, entry in zip(found[::2], found[1::2], strict=True)}


def _leases(
    queue: str,
    shard: int,
    tasks: tuple[range, list[bytes], list[int], list[bytes | None]],
    retried: dict[int, bytes],
    *,
    before: dict[int, bytes],
) -> Leases:
    """Decode tokens, IDs, due times and envelopes; by token: entries of `attempts`, and earlier runs of schedules."""
    leases: list[Lease] = []
    unreadable: list[tuple[Lease, Exception]] = []
    for token, raw_id, due_ms, envelope in zip(*tasks, strict=True):
        if envelope is None:
            continue
        member = b"%b:%d" % (raw_id, token)
        task_id = raw_id.decode(errors="replace")
        try:
            content = decode(envelope)
            failures, crashes = _counted(retried[token]) if token in retried else (0, 0)
        except (EnvelopeError, ValueError) as error:
            task = Task(task_id, queue, 1, token, due_ms, 0, envelope, BYTES_TYPE, {})
            unreadable.append((Lease(task, shard, member, 0), error))
            continue
        body, content_type, headers, scheduled_ms, (kind, version, last, _, tags, occurrence) = content
        run = (failures + crashes + 1, token, due_ms, scheduled_ms)
        task = Task(task_id, queue, *run, body, content_type, headers, shard, kind, version, tags, last)
        if occurrence is not None:
            _of_schedule(task, occurrence)
        leases.append(Lease(task, shard, member, failures))
    for lease in leases if retried or before else ():
        token = lease.task.token
        lease.entry, lease.run_before = retried.get(token, b""), before.get(token, b"")
    return Leases(leases, unreadable)


def _of_schedule(task: Task, occurrence: Occurrence) -> Task:
    """Say of a task that it is an occurrence; its first tag is for the scripts."""
    task.nominal_ms, task.tags = occurrence.nominal_ms, task.tags[1:]
    return task


def put_schedule(reply: list[Any]) -> ScheduleWritten:
    """Decode put_schedule.lua's reply."""
    outcome, version, owner = reply
    return ScheduleWritten(outcome.decode(), version, owner.decode())


def cleared(reply: list[Any]) -> tuple[int, bytes]:
    """Decode clear_schedule.lua's reply."""
    removed, cursor = reply
    return removed, cursor


def created(reply: int | bytes) -> int | str:
    """Decode create_occurrences.lua's reply."""
    return reply if isinstance(reply, int) else reply.decode()


def schedules(reply: list[Any]) -> SchedulePage:
    """Decode list_schedules.lua's reply; records that cannot be read are left out."""
    now_ms, rows, in_all = reply
    found = [_schedule(*row) for row in rows]
    return SchedulePage(now_ms, len(rows), [each for each in found if each is not None], in_all)


def _schedule(raw_id: bytes, entry: bytes, envelope: bytes) -> ScheduleRecord | None:
    state = _SCHEDULE.fullmatch(entry)
    try:
        body = decode(envelope).body
    except EnvelopeError:
        return None
    if state is None:
        return None
    version, phase, owner, cursor_ms, missed, skipped, last, began_ms, late_ms = state.groups()
    found = ScheduleRecord(
        *(raw_id.decode(), body, int(version), phase.decode(), owner.decode(), int(cursor_ms)),
        missed=int(missed),
        skipped=int(skipped),
    )
    if last == b"-":
        return found
    last_id = last.rpartition(b":")[0].decode()
    return replace(found, last_id=last_id, last_began_ms=int(began_ms), last_late_ms=int(late_ms))


def settled(count: int, outcome: Settled) -> Callable[[list[int]], list[Settled]]:
    """Return the decoder of a reply that has only the positions of lost leases."""

    def read(lost: list[int]) -> list[Settled]:
        outcomes = [outcome] * count
        for at in lost:
            outcomes[at] = Settled.LEASE_LOST
        return outcomes

    return read


def extended(reply: list[list[int]]) -> Extended:
    """Decode extend.lua's reply."""
    return Extended(*map(set, reply))


def each_settled(reply: list[bytes]) -> list[Settled]:
    """Decode a reply with an outcome for each lease."""
    return [Settled(name.decode()) for name in reply]


def wait(reply: list[int]) -> Wait:
    """Decode wake.lua's reply."""
    now_ms, due, untaken, next_due_us, next_expiry_us, room_us, deadline_us, look_us = reply
    waits, later = (
        (_seconds(next_due_us), _seconds(next_expiry_us)),
        (_seconds(deadline_us), _seconds(look_us)),
    )
    return Wait(now_ms, bool(due), bool(untaken), *waits, *_held(room_us), *later)


def leadership(reply: list[Any]) -> Leadership:
    """Decode elect.lua's reply."""
    leads, others_ms, stepped_back_ms, again_ms, others = reply
    uids = tuple(each.decode(errors="replace") for each in others)
    return Leadership(bool(leads), others_ms, stepped_back_ms, again_ms, uids)


def erased(reply: list[Any]) -> Erased:
    """Decode erase.lua's reply."""
    keys, tasks, other = reply
    return Erased(keys, tasks, other.decode(errors="replace"))


def pairs(reply: list[bytes]) -> list[tuple[str, str]]:
    """Decode a flat list of names and outcomes."""
    texts = [item.decode(errors="replace") for item in reply]
    return list(zip(texts[::2], texts[1::2], strict=True))


def expired(reply: list[Any]) -> Expired:
    """Decode expired.lua's reply."""
    next_us, members = reply
    return Expired(members, _seconds(next_us))


def examined(queue: str, member: bytes) -> Callable[[list[Any] | None], Examined | None]:
    """Return the decoder of examine.lua's reply for one lease; None when it is settled, extended or deferred."""

    def read(reply: list[Any] | None) -> Examined | None:
        if reply is None:
            return None
        expiry_ms, envelope, counted = reply
        return Examined(_of_lease(queue, member, envelope, counted), expiry_ms)

    return read


def _of_lease(queue: str, member: bytes, envelope: bytes | None, counted: bytes) -> Task | Unreadable:
    if envelope is None:
        return Unreadable("the lease has no task")
    raw_id, _, token = member.rpartition(b":")
    try:
        found = decode(envelope)
        failures, crashes = _counted(counted)
        task_id, number = raw_id.decode(), int(token)
    except (EnvelopeError, ValueError) as error:
        return Unreadable(str(error))
    # Redis does not store the due time of the run, only that for which the task was scheduled.
    run = (failures + crashes + 1, number, found.due_ms, found.due_ms)
    content = (found.body, found.content_type, found.headers)
    kind, version, last, _, tags, occurrence = found.further
    task = Task(task_id, queue, *run, *content, kind=kind, kind_version=version, tags=tags, deadline_ms=last)
    return task if occurrence is None else _of_schedule(task, occurrence)


def reconciled_page(reply: list[Any]) -> ReconciledPage:
    """Decode reconcile.lua's reply."""
    return ReconciledPage(int(reply[0]), pairs(reply[1]), reply[2])


def size_audit_page(reply: list[Any]) -> SizeAuditPage:
    """Decode audit_size.lua's reply."""
    return SizeAuditPage(int(reply[0]), reply[1])


def restored_orphans(reply: list[Any]) -> RestoredOrphans:
    """Decode restore_orphans.lua's reply."""
    cursor, left, ids = reply
    return RestoredOrphans(cursor.decode(), list(map(LostTask, left[::2], left[1::2])), ids)


def bulk_page(reply: list[Any]) -> BulkPage:
    """Decode bulk.lua's reply."""
    cursor, waiting, follow_ups, in_flight, dead, migrating, flat = reply
    listed = [
        (name.decode(errors="replace"), int(at_ms)) for name, at_ms in zip(flat[::2], flat[1::2], strict=True)
    ]
    return BulkPage(cursor, Bulk(waiting, follow_ups, in_flight, dead), migrating, listed)


def counts(horizons_ms: Sequence[int], instants_ms: Sequence[int]) -> Callable[[list[Any]], Counts]:
    """Return the decoder of counts.lua's reply for these horizons and instants."""

    def read(reply: list[Any]) -> Counts:
        now_ms, delayed, retry, suspect, *others = reply
        in_flight, lapsed, dead, due, due_retries, oldest, following, within, flat, parked = others
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        stats = _whole_numbers(fields)
        sizes = {name: stats.pop(name, 0) for name in _NO_COUNTERS}
        return Counts(
            now_ms=now_ms,
            scheduled=delayed - (due - suspect - due_retries),
            retrying=retry - due_retries,
            due=due,
            in_flight=in_flight,
            dead=dead,
            suspect=suspect,
            parked=parked,
            oldest_due_ms=oldest if oldest >= 0 else None,
            next_due_ms=following if following >= 0 else None,
            due_within=dict(zip(horizons_ms, within[: len(horizons_ms)], strict=True)),
            due_by=dict(zip(instants_ms, within[len(horizons_ms) :], strict=True)),
            stats=stats,
            lapsed=lapsed,
            bytes=max(0, sizes["bytes"]),
            history_bytes=sizes["finished_bytes"],
            format=sizes["format"] or (1 if flat else FORMAT),
            suspension=suspension(fields.get(b"suspended")),
        )

    return read


def _whole_numbers(fields: dict[bytes, bytes]) -> dict[str, int]:
    """Decode a hash of counters without `suspended`; other fields that are not numbers are of other programs."""
    return {
        name.decode(errors="replace"): int(value)
        for name, value in fields.items()
        if re.fullmatch(rb"-?\d{1,18}", value)
    }


def list_page(state: State) -> Callable[[list[Any]], ListPage]:
    """Return the decoder of list.lua's reply for one state."""

    def read(reply: list[Any]) -> ListPage:
        score, member, *entries = reply
        rows = {Position(float(entry[1]), entry[0]): _row(state, *entry) for entry in entries}
        return ListPage(rows, Position(float(score), member) if member else None)

    return read


def parked(reply: list[Any]) -> list[ParkedKind]:
    """Decode parked.lua's reply."""
    return [
        ParkedKind("" if kind == b"-" else kind.decode(errors="replace"), version, tasks, due_ms)
        for kind, version, tasks, due_ms in reply
    ]


def due_kinds(reply: list[Any]) -> dict[str, float]:
    """Decode due_kinds.lua's reply: the estimated number of tasks of each kind; '' for tasks without one."""
    due, *flat = reply
    share = due / max(1, sum(flat[1::2]))
    return {
        "" if kind == b"-" else kind.decode(errors="replace"): tasks * share
        for kind, tasks in zip(flat[::2], flat[1::2], strict=True)
    }


def view(task_id: str, next_page: Callable[[str | None], object]) -> Callable[[Any], Any]:
    """Return the decoder of get.lua's reply for one task.

    `next_page` receives the cursor of the next page, or None after a last page without a lease of the task.
    """

    def read(reply: list[Any] | None) -> TaskView | Searching | None:
        if reply is None:
            return None
        if reply[0] == b"done":
            return _done(task_id, *reply[1:])
        cursor = reply[0].decode() if len(reply) == 1 else None
        if (cursor or reply[0] == b"orphan") and (following := next_page(cursor)):
            return Searching(following)
        state, at_ms, member, envelope, counted, info, next_due_ms, cancelling = reply
        content = _readable(envelope)
        return TaskView(
            id=task_id,
            state=STATE_OF[state.decode()],
            at_ms=_at_ms(STATE_OF[state.decode()], at_ms),
            scheduled_ms=content.due_ms,
            kind=content.further.kind,
            kind_version=content.further.kind_version,
            deadline_ms=content.further.deadline_ms,
            tags=content.further.tags[
                content.further.occurrence is not None :
            ],  # without that of the schedule
            body=content.body,
            content_type=content.content_type,
            headers=content.headers,
            failed=_failures(counted, info),
            token=int(member.rpartition(b":")[2]) if member else None,
            follow_up_due_ms=next_due_ms or None,
            cancelling=bool(cancelling),
        )

    return read


def _done(task_id: str, done_ms: int, entry: bytes) -> TaskView | None:
    """Decode an entry of the history, see finished_task() in prelude/history.lua; None if it is unreadable."""
    found = _FINISHED.match(entry)
    if not found:
        return None
    attempts, late_ms, due_ms = map(int, found.groups())
    return TaskView(
        *(task_id, State.DONE, done_ms, due_ms, b"", "", {}, Failures()),
        attempts=attempts,
        late_ms=late_ms,
    )


def _readable(envelope: bytes) -> Envelope:
    """Decode an envelope; return an unreadable one as raw bytes, so that it does not hide other tasks."""
    try:
        return decode(envelope)
    except EnvelopeError:
        return Envelope(envelope, BYTES_TYPE, {}, 0)


def _row(state: State, *entry: Any) -> TaskRow:  # noqa: ANN401 -- one raw entry of the reply
    member, score, size, counted, info, kind, version = entry
    task_id, at_ms = member.decode(errors="replace"), _at_ms(state, _whole(float(score)))
    if state is State.IN_FLIGHT:
        task_id = task_id.rpartition(":")[0] or task_id
    elif state is State.PARKED:
        _, _, due, task_id = task_id.split(" ", 3)
        at_ms = int(due)
    name = "" if kind == b"-" else kind.decode()
    return TaskRow(task_id, state, at_ms, size, _failures(counted, info), name, version)


def _whole(score: float) -> int:
    """Round down; another program may have stored an infinite score."""
    return math.floor(max(-MOST_SCORE, min(score, MOST_SCORE)))


def _at_ms(state: State, score: int) -> int:
    """Convert a score to ms: a suspect's is a token, the µs of a claim; a deferred lease's is negative."""
    return score // 1000 if state is State.SUSPECT else abs(score)


def _failures(counted: bytes, info: bytes) -> Failures:
    entry = info or counted
    failures, crashes = _counted(entry)
    found = _COUNTED.match(entry)
    text = entry[found.end() if found else 0 :].decode(errors="replace")
    reason, _, error = text.partition(" ") if found and info else ("", "", text)
    return Failures(failures, crashes, reason, error)


def _counted(entry: bytes) -> tuple[int, int]:
    """Return failures and crashes; zero if the entry is unreadable, as attempts_of() in prelude/entries.lua."""
    found = _COUNTED.match(entry)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _held(room_us: int) -> tuple[bool, float | None]:
    """Return whether a limit holds tasks back, and the seconds until it allows more if known; see claim.lua."""
    return room_us != -1, _seconds(room_us)


def _seconds(wait_us: int) -> float | None:
    return wait_us / 1e6 if wait_us >= 0 else None

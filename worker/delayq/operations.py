"""What a client does, without the waiting: generators that yield calls (or seconds to pause) and are sent the answers.

Client and SyncClient drive the same generators; they differ in how they wait and in nothing else.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from delayq import message
from delayq.broker import BATCH, Broker
from delayq.errors import (
    DelayQError,
    DelayTooLong,
    InvalidDueTime,
    InvalidTask,
    PayloadTooLarge,
    QueueFull,
    Refused,
    TaskExists,
    TaskInFlight,
    Unavailable,
)
from delayq.keys import shard_of
from delayq.values import Cancelled, Counts, Outcome, Rescheduled, Scheduled, State, TaskRow, TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delayq.broker import Call
    from delayq.contract import Limits
    from delayq.replies import Stored

T = TypeVar("T")
# Yields calls to run, seconds to pause, Start or Finish; is sent the answers, which travel untyped.
Operation = Generator[Any, Any, T]
REFUSALS = frozenset({Outcome.EXISTS, Outcome.IN_FLIGHT, Outcome.FULL, Outcome.TOO_FAR})
IfExists = Literal["reject", "keep", "replace"]

log = logging.getLogger(__name__)

PAUSES_SECONDS = (0.05, 0.2, 1.0)  # between tries while Redis is unavailable
CHUNK = 500  # tasks per round trip of schedule_many: 2 ms of Redis' time
CHUNK_BYTES = 1 << 20
MAX_ID_BYTES = 200
MAX_MS = 1 << 47  # the due time must fit an envelope's six bytes: the year 6429
_ID = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")  # a lone surrogate has no bytes


class NewTask(NamedTuple):
    """One task for schedule_many; the same fields as schedule()."""

    payload: object
    delay_ms: int | None = None
    due_ms: int | None = None
    task_id: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None


class Start(NamedTuple):
    """Send these calls and answer with a ticket at once: what follows overlaps with Redis' own work."""

    calls: list[Call[Any]]


class Finish(NamedTuple):
    """Answer with what the calls of this ticket came to."""

    ticket: Any


class Results(NamedTuple):
    """What schedule_many has come to so far, by position."""

    stored: dict[int, Scheduled]
    refused: dict[int, Refused]


Prepared = tuple[str, str, bytes]  # id, when, envelope without its due time
Chunk = tuple[int, list[int], list[Any]]  # shard, positions, flat arguments: id, when, envelope, …


class Operations:
    """The operations on one queue, within its limits."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        """`limits` come from spec.limits."""
        self.broker, self.limits = broker, limits
        self._options = {
            "max_length": -(-limits.max_length // len(broker.shards)),
            "max_delay_ms": limits.max_delay_seconds * 1000,
        }

    # schedule

    def schedule(self, task: NewTask, if_exists: IfExists) -> Operation[Scheduled]:
        """Store one task, or raise why it was refused."""
        results = yield from self.schedule_many([task], if_exists)
        for error in results.refused.values():
            raise error
        return results.stored[0]

    def schedule_many(self, tasks: Iterable[NewTask], if_exists: IfExists) -> Operation[Results]:
        """Store any number of tasks, a chunk per round trip; the next chunk is encoded while Redis stores this one."""
        if if_exists not in ("reject", "keep", "replace"):
            raise ValueError(f'if_exists: expected "reject", "keep" or "replace", got {if_exists!r}')
        results, under_way = Results({}, {}), None
        try:
            for chunk in self._chunks(tasks, results.refused):
                ticket = yield Start([self._store(chunk, if_exists)])
                earlier, under_way = under_way, (ticket, chunk)
                if earlier:
                    yield from self._collect(*earlier, if_exists, results)
        except Exception:  # from `tasks` itself, too; what was sent still has its answer on the way
            if under_way:
                with suppress(DelayQError):
                    yield Finish(under_way[0])
            raise
        if under_way:
            yield from self._collect(*under_way, if_exists, results)
        return results

    def _store(self, chunk: Chunk, if_exists: IfExists, *, repeated: bool = False) -> Call[Stored]:
        shard, _, flat = chunk
        return self.broker.schedule(shard, flat, if_exists=if_exists, repeated=int(repeated), **self._options)

    def _collect(
        self, ticket: object, chunk: Chunk, if_exists: IfExists, results: Results
    ) -> Operation[None]:
        try:
            [done] = yield Finish(ticket)
        except Unavailable:
            [done] = yield from persistently([self._store(chunk, if_exists, repeated=True)])
        if done.clamped:
            log.warning(
                "due_in_the_past", extra={"fields": {"tasks": done.clamped, "queue": self.broker.queue}}
            )
        _, positions, flat = chunk
        for nth, at in enumerate(positions):
            task_id, when = flat[3 * nth], flat[3 * nth + 1]
            outcome = done.notes.get(nth, Outcome.CREATED) if done.notes else Outcome.CREATED
            if outcome in REFUSALS:
                results.refused[at] = self._refusal(task_id, outcome)
            else:
                results.stored[at] = Scheduled(task_id, _due_ms(when, done.now_ms), outcome)

    def _chunks(self, tasks: Iterable[NewTask], refused: dict[int, Refused]) -> Iterator[Chunk]:
        """Yield runs of at most CHUNK tasks and about CHUNK_BYTES of one shard; malformed tasks go to `refused`."""
        shards = len(self.broker.shards)
        open_chunks: dict[int, tuple[list[int], list[Any], list[int]]] = {}
        for at, task in enumerate(tasks):
            try:
                task_id, when, body = self._prepare(task)
            except Refused as error:
                refused[at] = error
                continue
            shard = shard_of(task_id, shards)
            if shard not in open_chunks:
                open_chunks[shard] = [], [], [0]
            positions, flat, size = open_chunks[shard]
            positions.append(at)
            flat += task_id, when, body
            size[0] += len(body)
            if len(positions) == CHUNK or size[0] > CHUNK_BYTES:
                yield shard, positions, flat
                del open_chunks[shard]
        for shard, (positions, flat, _) in open_chunks.items():
            yield shard, positions, flat

    def _prepare(self, task: NewTask) -> Prepared:
        payload, delay_ms, due_ms, task_id, headers, content_type = task
        task_id = next(_ids) if task_id is None else checked_id(task_id)
        when = _when(task_id, delay_ms, due_ms)
        if headers or content_type:
            self._check_headers(task_id, headers or {}, "" if content_type is None else content_type)
        try:
            body, size = message.encode(payload, content_type, headers)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidTask(
                task_id, f"payload of task {task_id}: expected a JSON value or bytes, {error}"
            ) from error
        if size > self.limits.max_payload_bytes:
            raise PayloadTooLarge(task_id, "payload", size=size, limit=self.limits.max_payload_bytes)
        return task_id, when, body

    def _check_headers(self, task_id: str, headers: object, content_type: object) -> None:
        if not isinstance(headers, Mapping) or not all(isinstance(text, str) for text in _texts(headers)):
            raise InvalidTask(task_id, f"headers of task {task_id}: expected a mapping of strings to strings")
        if not isinstance(content_type, str):
            raise InvalidTask(
                task_id, f"content_type of task {task_id}: expected a string, got {content_type!r:.60}"
            )
        # Whether each text can be encoded at all is found when it is.
        size = len("".join([*_texts(headers), content_type]).encode(errors="replace"))
        if size > self.limits.max_header_bytes:
            raise PayloadTooLarge(task_id, "headers", size=size, limit=self.limits.max_header_bytes)

    def _refusal(self, task_id: str, outcome: Outcome) -> Refused:
        match outcome:
            case Outcome.EXISTS:
                return TaskExists(task_id)
            case Outcome.IN_FLIGHT:
                return TaskInFlight(task_id)
            case Outcome.FULL:
                return QueueFull(task_id, self.limits.max_length)
        return DelayTooLong(task_id, self.limits.max_delay_seconds * 1000)

    # single tasks

    def cancel(self, task_id: str) -> Operation[Cancelled]:
        """Forget a task that is not running."""
        [outcome] = yield from persistently([self.broker.cancel(checked_id(task_id))])
        return Cancelled(outcome)

    def reschedule(self, task_id: str, delay_ms: int | None, due_ms: int | None) -> Operation[Rescheduled]:
        """Move a task's due time; raises DelayTooLong."""
        when, limit_ms = _when(checked_id(task_id), delay_ms, due_ms), self.limits.max_delay_seconds * 1000
        [done] = yield from persistently([self.broker.reschedule(task_id, when, max_delay_ms=limit_ms)])
        if done.outcome == "too_far":
            raise DelayTooLong(task_id, limit_ms)
        return done  # type: ignore[no-any-return] # answers travel untyped between a generator and its driver

    def get(self, task_id: str) -> Operation[TaskView | None]:
        """Return everything the queue knows of a task."""
        [view] = yield from persistently([self.broker.get(checked_id(task_id))])
        return view  # type: ignore[no-any-return] # as above

    # whole queue

    def counts(self, horizons_ms: Sequence[int] = ()) -> Operation[Counts]:
        """Count all shards together."""
        shards = range(len(self.broker.shards))
        found = yield from persistently([self.broker.counts(shard, horizons_ms) for shard in shards])
        return summed(found)

    def page(self, state: State, *, offset: int, limit: int) -> Operation[list[TaskRow]]:
        """Return `limit` tasks of a state by due time (lease expiry, time of death), after skipping `offset`."""
        rows: list[TaskRow] = []
        for shard in range(len(self.broker.shards)):
            rows += yield from self._shard_rows(shard, state, offset + limit)
        rows.sort(key=lambda row: (row.at_ms, row.id))
        return rows[offset : offset + limit]

    def _shard_rows(self, shard: int, state: State, wanted: int) -> Operation[list[TaskRow]]:
        rows: list[TaskRow] = []
        while len(rows) < wanted:
            at, limit = len(rows), min(BATCH, wanted - len(rows))
            [page] = yield from persistently([self.broker.list(shard, state, offset=at, limit=limit)])
            rows += page
            if len(page) < limit:
                break
        return rows


def persistently(calls: list[Call[Any]]) -> Operation[list[Any]]:
    """Yield calls until Redis answers, a few times. They have to be safe to repeat: each try may have been done."""
    for pause in PAUSES_SECONDS:
        try:
            answers: list[Any] = yield calls
        except Unavailable:
            yield pause
        else:
            return answers
    last: list[Any] = yield calls
    return last


def summed(found: Sequence[Counts]) -> Counts:
    """Add up the counts of several shards."""
    if len(found) == 1:
        return found[0]
    oldest = [each.oldest_due_ms for each in found if each.oldest_due_ms is not None]
    following = [each.next_due_ms for each in found if each.next_due_ms is not None]
    names = {name for each in found for name in each.stats}
    return Counts(
        now_ms=max(each.now_ms for each in found),
        delayed=sum(each.delayed for each in found),
        retry=sum(each.retry for each in found),
        processing=sum(each.processing for each in found),
        dlq=sum(each.dlq for each in found),
        overdue=sum(each.overdue for each in found),
        oldest_due_ms=min(oldest, default=None),
        next_due_ms=min(following, default=None),
        due_within={at: sum(each.due_within[at] for each in found) for at in found[0].due_within},
        stats={name: sum(each.stats.get(name, 0) for each in found) for name in sorted(names)},
    )


def ids() -> Iterator[str]:
    """Draw task ids without end: 12 letters and digits of 71 random bits, so that Redis keeps each in 16 bytes."""
    while True:
        drawn = base64.b64encode(os.urandom(9 * 256), b"Zz").decode()
        yield from (drawn[at : at + 12] for at in range(0, len(drawn), 12))


_ids = ids()


def checked_id(task_id: str) -> str:
    """Return a user's task id, or raise InvalidTask."""
    if type(task_id) is str and _ID.fullmatch(task_id) and len(task_id.encode()) <= MAX_ID_BYTES:
        return task_id
    shown = repr(task_id)[:60]
    expected = f"expected 1 to {MAX_ID_BYTES} bytes without spaces or control characters"
    raise InvalidTask(shown, f"task_id: {expected}, got {shown}")


def _texts(headers: Mapping[Any, Any]) -> list[Any]:
    return [text for pair in headers.items() for text in pair]


def _when(task_id: str, delay_ms: int | None, due_ms: int | None) -> str:
    if (delay_ms is None) == (due_ms is None):
        raise InvalidDueTime(task_id, f"task {task_id}: expected exactly one of delay_ms and due_ms")
    name, value = ("delay_ms", delay_ms) if due_ms is None else ("due_ms", due_ms)
    if type(value) is not int or not 0 <= value < MAX_MS:
        raise InvalidDueTime(
            task_id,
            f"task {task_id}: {name}: expected a whole number of milliseconds from 0, got {value!r:.60}",
        )
    return f"+{value}" if due_ms is None else str(value)


def _due_ms(when: str, now_ms: int) -> int:
    return now_ms + int(when) if when[0] == "+" else max(int(when), now_ms)

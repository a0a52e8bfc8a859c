"""Encodes the arguments of a user for schedule.lua: ids, moments, envelopes, in chunks. No I/O.

It rejects malformed tasks before anything is sent. The script makes the checks that need Redis' clock.
"""

from __future__ import annotations

import os
import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from delayq.client.times import MAX_MS, Moment, exact_span, moment
from delayq.durations import Duration
from delayq.errors import InvalidDueTime, InvalidTask, PayloadTooLarge, Refused
from delayq.protocol import envelope
from delayq.protocol.keys import is_occurrence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.client.taken_kinds import TakenKinds
    from delayq.contract import Limits
    from delayq.protocol.shard_map import ShardMap

CHUNK = 500  # tasks per round trip of schedule_many: 2 ms of Redis' time
CHUNK_BYTES = 1 << 20
BULK_IDS = 256  # that schedule_many generates at once
MAX_ID_BYTES = 200
MAX_TAGS, MAX_TAG_BYTES = 8, 64
JSON_GROWTH = (
    7  # at most, for each byte (\u0001) and for each header ("":"",); only large headers are measured
)
SECONDS = range(10**9, 10**11)  # as milliseconds, some weeks of the 1970s; as seconds, the years 2001 to 5138
EXACT = 1 << 53  # up to here, Lua represents each whole number
_UNSET = [None] * 4  # delay, due, deadline, debounce: in ms, or not given
T = TypeVar("T")

_KIND = re.compile(envelope.KIND_NAME)
_IMPLIED_TYPES = (envelope.JSON_TYPE, envelope.BYTES_TYPE)  # the envelope does not store their names
_LETTERS = bytes.maketrans(b"+/", b"Zz")  # of base64, instead of its signs
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ID = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")  # a lone surrogate cannot be encoded


class NewTask(NamedTuple):
    """One task for schedule_many; the same fields as schedule(), which explains them."""

    payload: object
    delay_ms: int | None = None
    due_ms: int | None = None
    task_id: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    kind: str | None = None
    version: int = 1
    """The version of the kind."""
    deadline_ms: int | None = None
    """How long after its due time the task may start, in ms."""
    debounce_ms: int | None = None
    """With if_exists="debounce": how long after the first call the task is due at the latest, in ms."""
    tags: Sequence[str] | None = None
    delay: Duration | None = None
    due: datetime | None = None
    deadline: Duration | None = None
    debounce: Duration | None = None


class Prepared(NamedTuple):
    """A task as schedule.lua takes it. prepare() has checked it, so schedule_many stores it as it is."""

    id: str
    moment: str
    envelope: bytes  # without its due time


class Chunk(NamedTuple):
    """Tasks for one shard. `passing`: their home is another shard, but they may not have migrated yet."""

    shard_map: ShardMap  # that determines the shard
    shard: int
    passing: bool
    positions: list[int]
    flat: list[Any]  # id, moment, envelope, …
    doubtful: bool = False  # a reply was lost: they may be stored, or may have run

    def some(self, those: Sequence[int]) -> Chunk:
        """Return a chunk with some of its tasks."""
        flat = [item for nth in those for item in self.flat[3 * nth : 3 * nth + 3]]
        return self._replace(positions=[self.positions[nth] for nth in those], flat=flat)


class TaskEncoder:
    """Encodes the tasks of one queue."""

    def __init__(self, limits: Limits, deadline_ms: int | None = None) -> None:
        """`limits` come from spec.limits, the deadline of tasks without one of their own from spec.delivery."""
        self._limits, self._deadline_ms = limits, deadline_ms
        self.taken: TakenKinds | None = None  # those of the document, if the client has read one

    def chunks(
        self,
        tasks: Iterable[NewTask | Prepared],
        refused: dict[int, Refused],
        shard_map: Callable[[], ShardMap],
        *,
        debounces: bool = False,
    ) -> Iterator[Chunk]:
        """Yield chunks of at most CHUNK tasks and about CHUNK_BYTES of one shard; malformed tasks go to `refused`.

        `shard_map` returns the current shard map, which may change meanwhile.
        """
        if type(tasks) is NewTask or not isinstance(tasks, Iterable):
            raise TypeError(f"schedule_many: expected an iterable of NewTask, got {tasks!r:.80}")
        now, open_chunks = shard_map(), dict[tuple[int, bool], tuple[list[int], list[Any], list[int]]]()
        fresh = new_ids()
        for at, task in enumerate(tasks):
            try:
                task_id, moment, body = (
                    task if isinstance(task, Prepared) else self.prepare(task, fresh, debounces=debounces)
                )
            except Refused as error:
                refused[at] = error
                continue
            if shard_map() is not now:
                yield from (Chunk(now, *target, *each[:2]) for target, each in open_chunks.items())
                now, open_chunks = shard_map(), {}
            target = now.first_lookup(task_id)
            if target not in open_chunks:
                open_chunks[target] = [], [], [0]
            positions, flat, size = open_chunks[target]
            positions.append(at)
            flat += task_id, moment, body
            size[0] += len(body)
            if len(positions) == CHUNK or size[0] > CHUNK_BYTES:
                yield Chunk(now, *target, positions, flat)
                del open_chunks[target]
        yield from (Chunk(now, *target, *each[:2]) for target, each in open_chunks.items())

    def chunk(self, task: NewTask, shard_map: ShardMap, *, debounces: bool = False) -> Chunk:
        """Return a chunk of this task alone; Refused when it is malformed or too large."""
        prepared = self.prepare(task, iter(new_id, None), debounces=debounces)
        return Chunk(shard_map, *shard_map.first_lookup(prepared[0]), [0], [*prepared])

    def prepare(
        self, task: NewTask, fresh: Iterator[str], *, debounces: bool = False
    ) -> tuple[str, str, bytes]:
        """Return the fields of Prepared, with a `fresh` id if the task has none; Refused when it is malformed.

        `debounces`: it is for if_exists="debounce".
        """
        if type(task) is not NewTask:
            shown = type(task).__name__
            raise InvalidTask("", f"schedule_many: expected each task to be a NewTask, got {shown}")
        (payload, delay_ms, due_ms, task_id, headers, content_type,
         kind, version, deadline_ms, latest_ms, tags, *times) = task  # fmt: skip
        task_id = next(fresh) if task_id is None else _chosen(stored_id(task_id, kind))
        if times != _UNSET:
            delay_ms, due_ms, deadline_ms, latest_ms = _in_ms(task, task_id)
        of_kind = ("", 0) if kind is None else _checked_kind(task_id, kind, version)
        if self.taken is not None:
            self.taken.check(task_id, kind, version)
        moment = when(task_id, delay_ms, due_ms)
        if headers or content_type:
            self._check_headers(task_id, headers or {}, "" if content_type is None else content_type)
        try:
            body, size = envelope.encode(payload, content_type, headers)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidTask(
                task_id, f"payload of task {task_id}: expected a JSON value or bytes, {error}"
            ) from error
        if size > self._limits.max_payload_bytes:
            raise PayloadTooLarge(task_id, "payload", size=size, limit=self._limits.max_payload_bytes)
        if deadline_ms is None:
            deadline_ms = self._deadline_ms
        else:
            _check_ms(task_id, "deadline_ms", deadline_ms)
        if debounces or latest_ms is not None:
            _check_debounce(task_id, latest_ms, delay_ms, debounces=debounces, named=task.task_id is not None)
        if kind is not None or deadline_ms is not None or latest_ms is not None or tags:
            named = checked_tags(tags, task_id) if tags else ()
            body = envelope.with_fields(body, envelope.Further(*of_kind, deadline_ms, latest_ms, named))
        return task_id, moment, body

    def _check_headers(self, task_id: str, headers: object, content_type: object) -> None:
        if not isinstance(headers, Mapping) or not all(isinstance(text, str) for text in _texts(headers)):
            raise InvalidTask(task_id, f"headers of task {task_id}: expected a mapping of strings to strings")
        if not isinstance(content_type, str) or _CONTROL.search(content_type):
            # HTTP headers and environment variables cannot contain them.
            expected = "expected a string without control characters"
            raise InvalidTask(
                task_id, f"content_type of task {task_id}: {expected}, got {content_type!r:.60}"
            )
        # Encoding the envelope checks whether each text can be encoded.
        stored_type = "" if content_type in _IMPLIED_TYPES else content_type
        size = len("".join([*_texts(headers), stored_type]).encode(errors="replace"))
        if size > self._limits.max_header_bytes:
            raise PayloadTooLarge(task_id, "headers", size=size, limit=self._limits.max_header_bytes)
        if JSON_GROWTH * (size + len(headers)) > envelope.MAX_HEADERS_JSON:
            size = len(envelope.headers_json(headers))
            if size > envelope.MAX_HEADERS_JSON:
                raise PayloadTooLarge(
                    task_id, "headers, as JSON,", size=size, limit=envelope.MAX_HEADERS_JSON
                )


def _in_ms(task: NewTask, task_id: str) -> tuple[int | None, int | None, int | None, int | None]:
    """Return delay, due time, deadline and debounce of a task in ms; InvalidDueTime, InvalidTask otherwise."""
    exact = Moment(task.delay_ms, task.due_ms)
    deadline_ms = exact_span(task.deadline, task.deadline_ms, "deadline", task_id)
    debounce_ms = exact_span(task.debounce, task.debounce_ms, "debounce", task_id)
    return *moment(task.delay, task.due, exact=exact, task_id=task_id), deadline_ms, debounce_ms


def new_id() -> str:
    """Generate a task id: 12 letters and digits of 71 random bits, which Redis stores in 16 bytes."""
    return b2a_base64(os.urandom(9), newline=False).translate(_LETTERS).decode()


def new_ids() -> Iterator[str]:
    """Generate task ids without end, BULK_IDS at once.

    Each call of a client has a generator of its own: threads cannot share one, and forked processes would get the ids
    that their parent has generated ahead.
    """
    while True:
        drawn = b2a_base64(os.urandom(9 * BULK_IDS), newline=False).translate(_LETTERS).decode()
        yield from (drawn[at : at + 12] for at in range(0, len(drawn), 12))


def checked_id(task_id: str) -> str:
    """Return a user's task id, or raise InvalidTask."""
    if type(task_id) is str and _ID.fullmatch(task_id) and len(task_id.encode()) <= MAX_ID_BYTES:
        return task_id
    shown = repr(task_id)[:60]
    expected = f"expected 1 to {MAX_ID_BYTES} bytes without spaces or control characters"
    raise InvalidTask(shown, f"task_id: {expected}, got {shown}")


def stored_id(task_id: str, kind: str | None) -> str:
    """Return the ID in Redis of a task that a user names by its kind and an ID, or raise InvalidTask.

    It is KIND:ID. Without a kind, `task_id` is the stored ID. An ID that begins with KIND: is a stored one already, as
    is that of an occurrence: so what was printed, exported or received by a handler can be passed with its kind, too.
    """
    checked_id(task_id)
    if kind is None or task_id.startswith(f"{_checked_name(task_id, kind)}:") or is_occurrence(task_id):
        return task_id
    stored = f"{kind}:{task_id}"
    return stored if len(stored.encode()) <= MAX_ID_BYTES else checked_id(stored)


def _chosen(task_id: str) -> str:
    """Return the stored ID of a new task, or raise InvalidTask."""
    if task_id.startswith("@"):
        expected = "expected an ID that does not begin with @, as those of schedules do"
        raise InvalidTask(task_id, f"task_id: {expected}, got {task_id!r:.60}")
    return task_id


def _checked_name(task_id: str, kind: object) -> str:
    if isinstance(kind, str) and _is_name(kind):
        return kind
    expected = "expected 1 to 64 letters, digits, _, . and -, the first a letter, a digit or _"
    raise InvalidTask(task_id, f"kind of task {task_id}: {expected}, got {kind!r:.80}")


@lru_cache(512)  # a process has few kinds, and asks twice for each task
def _is_name(kind: str) -> bool:
    return _KIND.fullmatch(kind) is not None


def check_kind(kind: object) -> None:
    """Raise InvalidTask unless this is the name of a kind, by which tasks are selected."""
    if not isinstance(kind, str) or not _is_name(kind):
        raise InvalidTask("", f"kind: expected the name of a kind, got {kind!r:.80}")


def _checked_kind(task_id: str, kind: object, version: object) -> tuple[str, int]:
    name = _checked_name(task_id, kind)
    if type(version) is not int or not 1 <= version <= envelope.MAX_KIND_VERSION:
        expected = f"expected a whole number from 1 to {envelope.MAX_KIND_VERSION}"
        raise InvalidTask(task_id, f"version of task {task_id}: {expected}, got {version!r:.60}")
    return name, version


def _check_debounce(
    task_id: str, debounce_ms: int | None, delay_ms: int | None, *, debounces: bool, named: bool
) -> None:
    if not debounces:
        raise InvalidTask(task_id, f'debounce_ms of task {task_id}: expected if_exists="debounce" beside it')
    if not named:
        raise InvalidTask("", 'task_id: if_exists="debounce" needs an ID that its calls have in common')
    if debounce_ms is None:
        message = f'task {task_id}: if_exists="debounce" needs debounce_ms, how far the due time may move'
        raise InvalidTask(task_id, message)
    _check_ms(task_id, "debounce_ms", debounce_ms)
    if delay_ms is not None and debounce_ms < delay_ms:
        expected = f"expected at least the delay of {delay_ms}, which it bounds"
        raise InvalidTask(task_id, f"debounce_ms of task {task_id}: {expected}, got {debounce_ms}")


def _check_ms(task_id: str, name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= envelope.MAX_DEADLINE_MS:
        expected = f"a whole number of milliseconds from 1 to {envelope.MAX_DEADLINE_MS}"
        raise InvalidTask(task_id, f"{name} of task {task_id}: expected {expected}, got {value!r:.60}")


def checked_tags(tags: object, task_id: str = "") -> tuple[str, ...]:
    """Return tags, each once, or raise InvalidTask."""
    where = f"tags of task {task_id}" if task_id else "tags"
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidTask(task_id, f"{where}: expected a list of strings, got {tags!r:.60}")
    found = tuple(dict.fromkeys(checked_tag(tag, where, task_id) for tag in tags))
    if len(found) > MAX_TAGS:
        raise InvalidTask(task_id, f"{where}: expected at most {MAX_TAGS}, got {len(found)}")
    return found


def checked_tag(tag: object, where: str = "tag", task_id: str = "") -> str:
    """Return a tag, or raise InvalidTask."""
    if type(tag) is str and _ID.fullmatch(tag) and len(tag.encode()) <= MAX_TAG_BYTES:
        return tag
    expected = f"expected 1 to {MAX_TAG_BYTES} bytes without spaces or control characters"
    raise InvalidTask(task_id, f"{where}: {expected}, got {tag!r:.80}")


def _texts(headers: Mapping[Any, Any]) -> list[Any]:
    return [text for pair in headers.items() for text in pair]


def when(task_id: str, delay_ms: int | None, due_ms: int | None) -> str:
    """Return a moment as the scripts take it: "+delay" or an instant, in ms; InvalidDueTime otherwise.

    Without either, it is now.
    """
    if delay_ms is None and due_ms is None:
        return "+0"
    if delay_ms is not None and due_ms is not None:
        raise InvalidDueTime(
            task_id, f"task {task_id}: expected at most one of delay_ms and due_ms, got both"
        )
    name, value = ("delay_ms", delay_ms) if due_ms is None else ("due_ms", due_ms)
    if type(value) is not int or not 0 <= value < MAX_MS:
        late = ", up to the year 6429" if type(value) is int and value >= MAX_MS else ""
        raise InvalidDueTime(
            task_id,
            f"task {task_id}: {name}: expected a whole number of milliseconds from 0{late}, got {value!r:.60}",
        )
    if due_ms is not None and due_ms in SECONDS:
        message = f"task {task_id}: due_ms: expected milliseconds since 1970, got {due_ms}, which looks like seconds"
        raise InvalidDueTime(task_id, f"{message}; did you mean {due_ms * 1000}?")
    return f"+{value}" if due_ms is None else str(value)


def check_whole(name: str, value: object) -> None:
    """Raise ValueError unless a value is a whole number of milliseconds or tasks that Lua represents exactly."""
    if type(value) is not int or not 0 <= value <= EXACT:
        raise ValueError(f"{name}: expected a whole number from 0 to {EXACT}, got {value!r:.60}")


def check_times(name: str, times: Sequence[int]) -> None:
    """Raise TypeError or ValueError unless these are times, or durations, in milliseconds."""
    for each in checked_list(name, times, "milliseconds"):
        check_whole(name, each)


def checked_list(name: str, values: Sequence[T], of: str) -> Sequence[T]:
    """Return a list; TypeError for what is none, or for text."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"{name}: expected a list of {of}, got {values!r:.60}")
    return values


def due_ms_of(moment: str, now_ms: int) -> int:
    """Return the due time of a moment, given Redis' time; the past is clamped, as in the scripts."""
    return now_ms + int(moment) if moment[0] == "+" else max(int(moment), now_ms)

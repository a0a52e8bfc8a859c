"""A task and its envelope, the bytes that Redis stores for it. A task's state is not in it, but in the sorted sets.

Envelope, version 1: one byte of version (high nibble) and flags, then the fields that the flags announce, the payload
unchanged, and the due time as 6 big-endian bytes, which the scripts append by Redis' clock. Seven bytes
around the payload keep a 100-byte payload inside one 112-byte allocation: 16 bytes per task less than with eight more.

Version 2 is for tasks with further fields, such as a kind: the first byte is followed by a byte of further flags and
their fields in this order, then all is as in version 1. Tasks without such fields have version 1, which costs no
byte more. fields_of() in prelude/entries.lua reads the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from delayq.errors import EnvelopeError, EnvelopeTooNew
from delayq.protocol.instants import instant

PLAIN, EXTENDED = 1, 2  # versions
JSON, HEADERS, CONTENT_TYPE = 1, 2, 4
# The further flags. The fields: of KIND a byte with the length of the name, the name, two bytes of version; of DEADLINE
# five bytes, ms after the due time; of LATEST six bytes, ms, which schedule.lua writes; of TAGS two bytes with the
# length, and the tags with spaces between them; of OCCURRENCE six bytes, the nominal time, ms; five bytes, for how many
# ms after its due time it may begin (all ones: no limit); and one byte, 1 if it begins only while no other one runs.
KIND, DEADLINE, LATEST, TAGS, OCCURRENCE = 1, 2, 4, 8, 16
_KNOWN = KIND | DEADLINE | LATEST | TAGS | OCCURRENCE
NO_LIMIT_MS = (1 << 40) - 1
# Of an envelope up to the end of these fields, without the kind's name.
_SIZES = {KIND: 5, KIND | DEADLINE: 10}
KIND_NAME, MAX_KIND_VERSION = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", 0xFFFF
JSON_TYPE, BYTES_TYPE = "application/json", "application/octet-stream"
_KIND = re.compile(KIND_NAME)
DUE_BYTES = 6
MAX_DEADLINE_MS = 10 * 366 * 86_400_000  # after the due time: ten years
_PLAIN_JSON = bytes((PLAIN << 4 | JSON,))
_NO_HEADERS: Mapping[str, str] = {}

encode_json = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode
MAX_HEADERS_JSON = 131_072 - len("DELAYQ_HEADERS=") - 1
"""Most bytes of headers as JSON: commands get them in one variable, of which Linux allows 128 KiB with its last NUL."""


def headers_json(headers: Mapping[str, str]) -> bytes:
    """Encode headers as UTF-8; a lone surrogate, which another program wrote, stays an escape of JSON."""
    return encode_json(headers).encode(errors="backslashreplace")


@dataclass(eq=False)
class Task:
    """The handler's argument. Names that end in `_ms` are in milliseconds; without it, they are datetimes in UTC.

    It is not frozen, because that would slow every task.
    """

    id: str
    queue: str
    attempt: int
    """The number of this run, from 1; crashes and charged failures count."""
    token: int
    """The fencing token: a later lease of the same task always has a greater one."""
    due_ms: int
    """When this run was due, by Redis' clock."""
    scheduled_ms: int
    """The due time the task was scheduled for; differs from due_ms on a retry."""
    body: bytes
    content_type: str
    headers: Mapping[str, str]
    shard: int = 0
    """The shard of the claim; a running task does not migrate."""
    kind: str = ""
    """The name of its kind; empty for a task without one."""
    kind_version: int = 0
    """The version of its kind; 0 for a task without one."""
    tags: tuple[str, ...] = ()
    deadline_ms: int | None = None
    """How long after `scheduled_ms` the task may be claimed; None without a deadline."""
    nominal_ms: int | None = None
    """The nominal time of an occurrence of a schedule; None for other tasks."""

    @property
    def schedule(self) -> str:
        """The name of the DelaySchedule whose occurrence it is; "" for other tasks."""
        return "" if self.nominal_ms is None else self.id[1:].partition("@")[0]

    @property
    def expires_ms(self) -> int | None:
        """The last ms, by Redis' clock, in which the task may be claimed; None without a deadline."""
        return None if self.deadline_ms is None else self.scheduled_ms + self.deadline_ms

    @property
    def due(self) -> datetime:
        """When this run was due, by Redis' clock."""
        return instant(self.due_ms)

    @property
    def scheduled(self) -> datetime:
        """The due time the task was scheduled for; differs from `due` on a retry."""
        return instant(self.scheduled_ms)

    @property
    def expires(self) -> datetime | None:
        """The last instant in which the task may be claimed; None without a deadline."""
        return instant(self.expires_ms)

    @property
    def nominal(self) -> datetime | None:
        """The nominal time of an occurrence of a schedule; None for other tasks."""
        return instant(self.nominal_ms)

    @cached_property
    def payload(self) -> Any:  # noqa: ANN401 -- any JSON value
        """The payload as it was scheduled: a JSON value, or bytes for any other content type."""
        return decoded(self.body, self.content_type)


def decoded(body: bytes, content_type: str) -> Any:  # noqa: ANN401 -- any JSON value
    """Return a payload as a JSON value, or as bytes for any other content type. ValueError if it is not JSON."""
    return json.loads(body) if content_type == JSON_TYPE else body


class Occurrence(NamedTuple):
    """What the envelope of an occurrence of a schedule has beside that of its task."""

    nominal_ms: int
    within_ms: int = NO_LIMIT_MS  # it begins at most so much later than it is due
    alone: bool = False  # it begins only while no other one runs
    backfilled: bool = False  # it is not the last run of the schedule


class Further(NamedTuple):
    """The further fields of version 2, with the values that a task of version 1 has."""

    kind: str = ""
    kind_version: int = 0
    deadline_ms: int | None = None  # after the due time; the task is not claimed later
    latest_ms: int | None = None  # the latest due time that if_exists="debounce" may give it
    tags: tuple[str, ...] = ()
    occurrence: Occurrence | None = None


PLAIN_TASK = Further()


class Envelope(NamedTuple):
    """The decoded bytes of one task."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]
    due_ms: int
    further: Further = PLAIN_TASK


def with_fields(envelope: bytes, further: Further) -> bytes:
    """Return an envelope of version 1 as one of version 2 with these fields; unchanged if there are none."""
    kind, version, deadline_ms, latest_ms, tags, occurrence = further
    flags, fields = 0, b""
    if kind:
        flags, fields = KIND, _kind_field(kind, version)
    if deadline_ms is not None:
        flags, fields = flags | DEADLINE, fields + deadline_ms.to_bytes(5, "big")
    if latest_ms is not None:
        flags, fields = flags | LATEST, fields + latest_ms.to_bytes(6, "big")
    if tags:
        joined = " ".join(tags).encode()
        flags, fields = flags | TAGS, fields + len(joined).to_bytes(2, "big") + joined
    if occurrence is not None:
        nominal, within = occurrence.nominal_ms.to_bytes(6, "big"), occurrence.within_ms.to_bytes(5, "big")
        how = bytes((occurrence.alone + 2 * occurrence.backfilled,))
        flags, fields = flags | OCCURRENCE, fields + nominal + within + how
    if not flags:
        return envelope
    return b"".join((bytes((EXTENDED << 4 | envelope[0] & 15, flags)), fields, envelope[1:]))


@lru_cache(maxsize=512)
def _kind_field(kind: str, version: int) -> bytes:
    name = kind.encode()
    return b"".join((bytes((len(name),)), name, version.to_bytes(2, "big")))


def encode(payload: object, content_type: str | None, headers: Mapping[str, str] | None) -> tuple[bytes, int]:
    """Return the envelope without its due time, and the payload's size in bytes. ValueError when it is not JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return _encode_bytes(bytes(payload), content_type or BYTES_TYPE, headers)
    if content_type not in (None, JSON_TYPE):
        raise ValueError(f"a payload of type {content_type} has to be bytes, got {type(payload).__name__}")
    body = encode_json(payload).encode()
    if not headers:
        return _PLAIN_JSON + body, len(body)
    return bytes((PLAIN << 4 | JSON | HEADERS,)) + _sized(encode_json(headers).encode()) + body, len(body)


def _encode_bytes(body: bytes, kind: str, headers: Mapping[str, str] | None) -> tuple[bytes, int]:
    flags, prefix = 0, b""
    if kind == JSON_TYPE:
        flags |= JSON
    elif kind != BYTES_TYPE:
        flags |= CONTENT_TYPE
        prefix += _sized(kind.encode())
    if headers:
        flags |= HEADERS
        prefix += _sized(encode_json(headers).encode())
    return bytes((PLAIN << 4 | flags,)) + prefix + body, len(body)


def decode(envelope: bytes) -> Envelope:
    """Decode an envelope with its due time; EnvelopeTooNew or EnvelopeError when it cannot be decoded."""
    if len(envelope) <= DUE_BYTES:
        raise EnvelopeError(f"expected at least {DUE_BYTES + 1} bytes, got {len(envelope)}")
    version, flags = envelope[0] >> 4, envelope[0] & 15
    due_ms = int.from_bytes(envelope[-DUE_BYTES:], "big")
    if flags == JSON and version == PLAIN:
        return Envelope(envelope[1:-DUE_BYTES], JSON_TYPE, _NO_HEADERS, due_ms)
    if version > EXTENDED:
        raise EnvelopeTooNew(f"envelope version {version}, this delayq reads up to {EXTENDED}")
    if version < PLAIN or flags > CONTENT_TYPE | HEADERS | JSON:
        raise EnvelopeError(f"unknown envelope header byte 0x{envelope[0]:02x}")
    try:
        at, further = (1, PLAIN_TASK) if version == PLAIN else _further(envelope)
        if flags == JSON:
            return Envelope(envelope[at:-DUE_BYTES], JSON_TYPE, _NO_HEADERS, due_ms, further)
        return _decode_rest(envelope, at, flags, Envelope(b"", "", _NO_HEADERS, due_ms, further))
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"unreadable envelope: {error}") from error


def _further(envelope: bytes) -> tuple[int, Further]:
    """Return where the further fields end, and the fields; those that all tasks of a kind have are decoded once."""
    at = _SIZES.get(envelope[1], len(envelope)) + envelope[2]
    if at > len(envelope) - DUE_BYTES:
        return _decode_further(envelope)
    return at, _decode_head(envelope[:at])


@lru_cache(maxsize=512)
def _decode_head(head: bytes) -> Further:
    return _decode_further(head + bytes(DUE_BYTES))[1]


def _decode_further(envelope: bytes) -> tuple[int, Further]:
    """Return where the further fields end, and the fields."""
    flags, at = envelope[1], 2
    if flags & ~_KNOWN:
        raise EnvelopeTooNew(f"envelope with the unknown fields 0x{flags & ~_KNOWN:02x}")

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        if at > len(envelope) - DUE_BYTES:
            raise ValueError(f"{len(envelope)} bytes announce a field up to byte {at}")
        return envelope[at - size : at]

    found = PLAIN_TASK
    if flags & KIND:
        kind = take(take(1)[0]).decode()
        if not _KIND.fullmatch(kind):
            raise ValueError(f"invalid kind {kind!r:.80}")
        found = found._replace(kind=kind, kind_version=int.from_bytes(take(2), "big"))
    if flags & DEADLINE:
        found = found._replace(deadline_ms=int.from_bytes(take(5), "big"))
    if flags & LATEST:
        found = found._replace(latest_ms=int.from_bytes(take(6), "big"))
    if flags & TAGS:
        found = found._replace(tags=tuple(take(int.from_bytes(take(2), "big")).decode().split()))
    if flags & OCCURRENCE:
        nominal, within, how = take(6), take(5), take(1)[0]
        moment, limit = int.from_bytes(nominal, "big"), int.from_bytes(within, "big")
        found = found._replace(
            occurrence=Occurrence(moment, limit, alone=bool(how & 1), backfilled=bool(how & 2))
        )
    return at, found


def _decode_rest(envelope: bytes, at: int, flags: int, found: Envelope) -> Envelope:
    content_type, headers = JSON_TYPE if flags & JSON else BYTES_TYPE, _NO_HEADERS
    if flags & CONTENT_TYPE:
        raw, at = _take(envelope, at)
        content_type = raw.decode()
    if flags & HEADERS:
        raw, at = _take(envelope, at)
        headers = _headers(raw)
    return found._replace(body=envelope[at:-DUE_BYTES], content_type=content_type, headers=headers)


def _headers(raw: bytes) -> Mapping[str, str]:
    """Decode and validate headers: other clients may write anything, and handlers rely on strings."""
    found = json.loads(raw)
    if type(found) is not dict or not all(type(value) is str for value in found.values()):
        raise ValueError("headers: expected a mapping of strings to strings")
    return found


def _sized(value: bytes) -> bytes:
    return len(value).to_bytes(3, "big") + value


def _take(envelope: bytes, at: int) -> tuple[bytes, int]:
    start = at + 3
    end = start + int.from_bytes(envelope[at:start], "big")
    if end > len(envelope) - DUE_BYTES:
        raise EnvelopeError(f"an envelope of {len(envelope)} bytes announces a field up to byte {end}")
    return envelope[start:end], end

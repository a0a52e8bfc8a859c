"""A task and its envelope, the bytes that Redis stores for it. A task's state is not in it, but in the sorted sets.

Envelope, version 1: one byte of version (high nibble) and flags, then the fields that the flags announce, the payload
unchanged, and the due time as 6 big-endian bytes, which the scripts append by Redis' clock. Seven bytes
around the payload keep a 100-byte payload inside one 112-byte allocation: 16 bytes per task less than with eight more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.errors import EnvelopeError, EnvelopeTooNew

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
JSON, HEADERS, CONTENT_TYPE = 1, 2, 4
JSON_TYPE, BYTES_TYPE = "application/json", "application/octet-stream"
DUE_BYTES = 6
_PLAIN_JSON = bytes((VERSION << 4 | JSON,))
_NO_HEADERS: Mapping[str, str] = {}

encode_json = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


@dataclass(eq=False)
class Task:
    """The handler's argument. It is not frozen, because that would slow every task."""

    id: str
    queue: str
    attempt: int  # 1 for the first run; crashes and charged failures count
    token: int  # the fencing number: a later lease of the same task always has a greater one
    due_ms: int  # when this run was due, by Redis' clock
    scheduled_ms: int  # the due time the task was scheduled for; differs from due_ms on a retry
    body: bytes
    content_type: str
    headers: Mapping[str, str]
    shard: int = 0  # of the claim; a running task does not migrate

    @cached_property
    def payload(self) -> Any:  # noqa: ANN401 -- any JSON value
        """The payload as it was scheduled: a JSON value, or bytes for any other content type."""
        return json.loads(self.body) if self.content_type == JSON_TYPE else self.body


class Envelope(NamedTuple):
    """The decoded bytes of one task."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]
    due_ms: int


def encode(payload: object, content_type: str | None, headers: Mapping[str, str] | None) -> tuple[bytes, int]:
    """Return the envelope without its due time, and the payload's size in bytes. ValueError when it is not JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return _encode_bytes(bytes(payload), content_type or BYTES_TYPE, headers)
    if content_type not in (None, JSON_TYPE):
        raise ValueError(f"a payload of type {content_type} has to be bytes, got {type(payload).__name__}")
    body = encode_json(payload).encode()
    if not headers:
        return _PLAIN_JSON + body, len(body)
    return bytes((VERSION << 4 | JSON | HEADERS,)) + _sized(encode_json(headers).encode()) + body, len(body)


def _encode_bytes(body: bytes, kind: str, headers: Mapping[str, str] | None) -> tuple[bytes, int]:
    flags, prefix = 0, b""
    if kind != BYTES_TYPE:
        flags |= CONTENT_TYPE
        prefix += _sized(kind.encode())
    if headers:
        flags |= HEADERS
        prefix += _sized(encode_json(headers).encode())
    return bytes((VERSION << 4 | flags,)) + prefix + body, len(body)


def decode(envelope: bytes) -> Envelope:
    """Decode an envelope with its due time; EnvelopeTooNew or EnvelopeError when it cannot be decoded."""
    if len(envelope) <= DUE_BYTES:
        raise EnvelopeError(f"expected at least {DUE_BYTES + 1} bytes, got {len(envelope)}")
    version, flags = envelope[0] >> 4, envelope[0] & 15
    if version > VERSION:
        raise EnvelopeTooNew(f"envelope version {version}, this delayq reads up to {VERSION}")
    due_ms = int.from_bytes(envelope[-DUE_BYTES:], "big")
    if flags == JSON and version == VERSION:
        return Envelope(envelope[1:-DUE_BYTES], JSON_TYPE, _NO_HEADERS, due_ms)
    if version != VERSION or flags > CONTENT_TYPE | HEADERS | JSON:
        raise EnvelopeError(f"unknown envelope header byte 0x{envelope[0]:02x}")
    return _decode_rest(envelope, flags, due_ms)


def _decode_rest(envelope: bytes, flags: int, due_ms: int) -> Envelope:
    at, kind, headers = 1, JSON_TYPE if flags & JSON else BYTES_TYPE, _NO_HEADERS
    try:
        if flags & CONTENT_TYPE:
            raw, at = _take(envelope, at)
            kind = raw.decode()
        if flags & HEADERS:
            raw, at = _take(envelope, at)
            headers = _headers(raw)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"unreadable envelope: {error}") from error
    return Envelope(envelope[at:-DUE_BYTES], kind, headers, due_ms)


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

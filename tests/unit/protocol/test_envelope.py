"""The envelope: what goes in comes out, and what cannot be read says so."""

from __future__ import annotations

import pytest
from delayq.errors import EnvelopeError, EnvelopeTooNew
from delayq.protocol.envelope import (
    BYTES_TYPE,
    JSON_TYPE,
    Envelope,
    Further,
    Task,
    decode,
    encode,
    with_fields,
)
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)
HEADERS = st.dictionaries(TEXT, TEXT)
DUES = st.integers(0, (1 << 47) - 1)


def stored(body: bytes, due_ms: int) -> bytes:
    """As schedule.lua completes it."""
    return body + due_ms.to_bytes(6, "big")


def task(content: Envelope) -> Task:
    return Task(
        "id", "q", 1, 7, content.due_ms, content.due_ms, content.body, content.content_type, content.headers
    )


@given(JSON_VALUES, HEADERS, DUES)
def test_any_json_value_comes_back(payload: object, headers: dict[str, str], due_ms: int) -> None:
    body, size = encode(payload, None, headers)
    content = decode(stored(body, due_ms))
    assert (content.content_type, content.headers, content.due_ms) == (JSON_TYPE, headers, due_ms)
    assert task(content).payload == payload
    assert size == len(content.body)


@given(st.binary(), TEXT, HEADERS, DUES)
def test_any_bytes_of_any_type_come_back(
    payload: bytes, kind: str, headers: dict[str, str], due_ms: int
) -> None:
    body, size = encode(payload, kind, headers)
    assert decode(stored(body, due_ms)) == Envelope(payload, kind or BYTES_TYPE, headers, due_ms)
    assert size == len(payload)


KINDS = st.just(("", 0)) | st.tuples(st.from_regex(r"\A[a-z_][a-z.-]{0,63}\Z"), st.integers(1, 0xFFFF))
TAGS = st.lists(st.from_regex(r"\A[a-z:0-9ü-]{1,40}\Z"), max_size=8).map(tuple)


@given(
    st.binary() | JSON_VALUES,
    HEADERS,
    DUES,
    KINDS,
    st.none() | st.integers(0, 2**40 - 1),
    st.none() | DUES,
    TAGS,
)
def test_further_fields_come_back_and_change_nothing_else(  # noqa: PLR0917 -- each is drawn
    payload: object,
    headers: dict[str, str],
    due_ms: int,
    kind: tuple[str, int],
    deadline_ms: int | None,
    latest_ms: int | None,
    tags: tuple[str, ...],
) -> None:
    further = Further(*kind, deadline_ms, latest_ms, tags)
    body, _ = encode(payload, None, headers)
    plain, content = decode(stored(body, due_ms)), decode(stored(with_fields(body, further), due_ms))
    assert content == plain._replace(further=further)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_anything_like_bytes_is_bytes_and_may_say_it_is_json(view: type) -> None:
    typed = decode(stored(encode(view(b'{"a":1}'), JSON_TYPE, None)[0], 5))
    assert task(typed).payload == {"a": 1}
    content = decode(stored(encode(view(b"\x00\xff"), None, None)[0], 5))
    assert (content.body, task(content).payload) == (b"\x00\xff", b"\x00\xff")


def test_the_bytes_of_version_1_never_change() -> None:
    """Tasks stored today are read by the next delayq.

    Of a plain JSON task, seven bytes are around the payload: an eighth would cost 16 bytes of Redis' memory per task.
    """
    assert (
        stored(encode({"a": "ü"}, None, None)[0], 1_700_000_000_000)
        == b'\x11{"a":"\xc3\xbc"}\x01\x8b\xcf\xe5h\x00'
    )
    assert encode(1, None, {"h": "v"})[0] == b'\x13\x00\x00\x09{"h":"v"}1'
    assert encode(b"\xff", None, None)[0] == b"\x10\xff"
    assert encode(b"\xff", "a/b", {"h": "v"})[0] == b'\x16\x00\x00\x03a/b\x00\x00\x09{"h":"v"}\xff'


def test_the_bytes_of_version_2_never_change() -> None:
    kind = Further("push", 258)
    assert with_fields(encode({"a": 1}, None, None)[0], kind) == b'\x21\x01\x04push\x01\x02{"a":1}'
    assert with_fields(b"\x16\x00\x00\x03a/b", Further("p", 1)) == b"\x26\x01\x01p\x00\x01\x00\x00\x03a/b"
    every = Further("p", 1, 258, 259, ("a:1", "b"))
    assert (
        with_fields(b"\x11{}", every) == b"\x21\x0f\x01p\x00\x01"
        b"\x00\x00\x00\x01\x02"
        b"\x00\x00\x00\x00\x01\x03"
        b"\x00\x05a:1 b{}"
    )
    assert decode(stored(b"\x21\x00{}", 5)) == Envelope(b"{}", JSON_TYPE, {}, 5)


CYCLE: list[object] = []
CYCLE.append(CYCLE)
NOT_JSON = [float("nan"), float("inf"), {1, 2}, object(), "\ud800", {"a": [float("nan")]}, {(1, 2): 3}, CYCLE]


@pytest.mark.parametrize("payload", NOT_JSON, ids=lambda payload: type(payload).__name__)
def test_what_is_not_json_is_refused(payload: object) -> None:
    with pytest.raises((TypeError, ValueError, RecursionError)):
        encode(payload, None, None)
    with pytest.raises(ValueError, match="a payload of type text/plain has to be bytes, got"):
        encode(payload, "text/plain", None)


@pytest.mark.parametrize("head", range(0x30, 0x100, 0x10))
def test_a_newer_version_differs_from_garbage(head: int) -> None:
    """Such a task is left alone for a newer delayq, where garbage would be buried."""
    with pytest.raises(EnvelopeTooNew, match=f"version {head >> 4}"):
        decode(bytes([head]) + bytes(6))


@pytest.mark.parametrize("fields", [0x20, 0x40, 0x80, 0x8F, 0xFF])
def test_fields_that_only_a_newer_delayq_has_are_left_to_it(fields: int) -> None:
    with pytest.raises(EnvelopeTooNew, match=f"unknown fields 0x{fields & 0xE0:02x}"):
        decode(bytes([0x21, fields]) + b"\x01k\x00\x01{}" + bytes(6))


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"\x11",
        bytes(6),
        b"\x00" + bytes(6),
        b"\x18" + bytes(6),
        b"\x12\x00\x00\x05ab" + bytes(6),
        b"\x21\x01\x09kind" + bytes(6),
        b"\x21\x01\x01\xff\x00\x01" + bytes(6),
        b"\x21\x01\x03a b\x00\x01" + bytes(6),
        b"\x21\x02\x00\x00\x00\x00" + bytes(6),
        b"\x21\x08\x00\x09a" + bytes(6),
        b"\x21\x08\x00\x01\xff" + bytes(6),
    ],
    ids=[
        "empty",
        "short",
        "six",
        "version 0",
        "unknown flag",
        "field too long",
        "kind too long",
        "kind not UTF-8",
        "kind with a space",
        "deadline too long",
        "tags too long",
        "tags not UTF-8",
    ],
)
def test_what_is_no_envelope_says_so(envelope: bytes) -> None:
    with pytest.raises(EnvelopeError):
        decode(envelope)


@pytest.mark.parametrize(
    "raw", [b"[1]", b'{"a": 1}', b'{"a": null}', b'"text"', b"[" * 100_000, b'{"a":' * 100_000, b"\xff"]
)
def test_headers_that_are_no_texts_are_no_envelope(raw: bytes) -> None:
    """At any depth: a worker that claims them must not crash."""
    with pytest.raises(EnvelopeError):
        decode(b"\x13" + len(raw).to_bytes(3, "big") + raw + b"{}" + bytes(6))

"""A stream of a watch, in pieces of any size."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.kube import watching
from delayq.kube.errors import Gone, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADDED = {"type": "ADDED", "object": {"metadata": {"name": "é" * 100}}}
ENDED = {"type": "DELETED", "object": {"metadata": {"name": "b"}}}


def read(*chunks: bytes) -> list[tuple[str, dict[str, Any]]]:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[tuple[str, dict[str, Any]]]:
        return [(each.type, each.object) async for each in watching.events(stream())]

    return asyncio.run(collect())


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_events_do_not_depend_on_where_the_stream_is_cut(size: int) -> None:
    text = b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in (ADDED, ENDED))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert read(*pieces) == [(each["type"], each["object"]) for each in (ADDED, ENDED)]


def test_an_error_in_a_watch_is_mapped_like_a_response() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
    with pytest.raises(Gone):
        read(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    with pytest.raises(Unavailable):
        read(b'{"type": "ERROR", "object": {}}\n')


def test_an_object_that_is_nested_too_deeply_is_no_bug() -> None:
    with pytest.raises(Unavailable, match="nested"):
        read(b'{"type": "ADDED", "object": ' + b"[" * 100_000 + b"\n")


def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONGEST_LINE", 100)
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        read(b"a" * 60, b"a" * 60)

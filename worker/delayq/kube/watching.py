"""The stream of a watch: lines of JSON, one event each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.kube.errors import Unavailable, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from delayq.kube.objects import Object

LONGEST_LINE: Final = 16 << 20  # an object is at most 1.5 MiB in etcd; JSON escapes can multiply that
SERVER_ERROR: Final = 500


class Event(NamedTuple):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: Object


async def events(chunks: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    """Yield the events of a stream; raises the error that it ends with. aiohttp's readline() refuses long lines."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *ends, last = chunk.split(b"\n")
        for end in ends:
            yield _event(_parsed(b"".join([*rest, end])))
            rest = []
        rest.append(last)
        if sum(map(len, rest)) > LONGEST_LINE:
            raise Unavailable(f"a line of more than {LONGEST_LINE} bytes in a watch")


def _parsed(line: bytes) -> Object:
    try:
        found: Object = json.loads(line)
    except RecursionError:
        raise Unavailable("an object that is nested too deeply") from None
    return found


def _event(line: Object) -> Event:
    if line["type"] == "ERROR":
        status = line["object"]
        raise refusal(status.get("code", SERVER_ERROR), status.get("reason", ""), status.get("message", ""))
    return Event(type=line["type"], object=line["object"])

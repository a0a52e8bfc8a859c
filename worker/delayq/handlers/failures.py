"""Describe a failed run: the error in a line or two, and its traceback. Both are bounded.

Exceptions are users' code: reading one may raise, which callers have to expect.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from delayq.errors import Bury, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MAX_ERROR_BYTES = 500  # Redis keeps an error beside its task
# Bounds of a traceback in the log: exceptions, frames of each (the innermost), characters of a line.
MAX_EXCEPTIONS, MAX_FRAMES, MAX_CHARS = 4, 15, 200
MAX_MESSAGE_CHARS = 10_000  # splitting megabytes into lines would block the event loop
_DELAYQ = f"{Path(__file__).parents[1]}{os.sep}"
_WORKER = f"{_DELAYQ}worker{os.sep}"
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Raised(TypedDict):
    """One exception of a traceback: its message, and its frames, the innermost last."""

    error: str
    frames: list[str]


def described(error: BaseException) -> str:
    """Return an exception and where it was raised: `KeyError: 'order' (shop.orders:load line 7)`, then its details.

    Dead letters are grouped by the first line.
    """
    first, *details = _text(error).splitlines() or [""]
    place = None if isinstance(error, Retry) else _place(error)
    return bounded("\n".join([f"{first} ({place})" if place else first, *details]))


def bounded(text: str) -> str:
    """Return at most MAX_ERROR_BYTES of a text, without its indentation."""
    lines = "\n".join(" ".join(line.split()) for line in text.splitlines())
    return lines.encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")


def with_frames(text: str, error: BaseException) -> str:
    """Return a bounded text and below it as many of the error's innermost frames as there is room for."""
    kept, room = list[str](), MAX_ERROR_BYTES - len(text.encode())
    for line in reversed(_frames(error)):
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        kept.insert(0, line)
    return bounded("\n".join([text, *kept]))


def traceback_of(error: BaseException) -> list[Raised]:
    """Return an exception, its group's members and its causes, except those without frames outside of delayq."""
    found = [Raised(error=_line(_text(each)), frames=_frames(each)) for each in _related(error)]
    return [each for each in found if each["frames"]]


def message_of(error: BaseException) -> str:
    """Return the message of an exception."""
    try:
        return str(error)[:MAX_MESSAGE_CHARS]
    except Exception as broken:  # noqa: BLE001 -- __str__ may be the user's code
        return f"(its message cannot be shown: {type(broken).__name__})"


def _text(error: BaseException) -> str:
    plain = isinstance(error, (Retry, Bury))
    return message_of(error) if plain else f"{type(error).__name__}: {message_of(error)}"


def _related(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its group's members and its causes, the nearest first, each once: causes can be cyclic."""
    waiting, seen = [error], list[BaseException]()
    while waiting and len(seen) < MAX_EXCEPTIONS:
        at = waiting.pop(0)
        if any(at is each for each in seen):
            continue
        seen.append(at)
        yield at
        if isinstance(at, BaseExceptionGroup):
            waiting += at.exceptions
        if led := at.__cause__ or (None if at.__suppress_context__ else at.__context__):
            waiting.append(led)


def _frames(error: BaseException) -> list[str]:
    """Return the innermost frames outside of delayq, as `shop.orders:load line 7: return orders[key]`."""
    frames = [found for found in traceback.walk_tb(error.__traceback__) if not _is_ours(found[0])]
    return [_line(f"{_named(*found)}: {_source(*found)}") for found in frames[-MAX_FRAMES:]]


def stack_of(frame: FrameType | None) -> list[str]:
    """Return where a thread is: its innermost frames outside of delayq, up to the worker, which called the handler."""
    stack = [] if frame is None else traceback.walk_stack(frame)
    above = takewhile(lambda found: not found[0].f_code.co_filename.startswith(_WORKER), stack)
    frames = [_line(f"{_named(*found)}: {_source(*found)}") for found in above if not _is_ours(found[0])]
    return frames[:MAX_FRAMES][::-1]


def innermost(error: BaseException) -> tuple[FrameType, int] | None:
    """Return the innermost frame of the user's own code, outside of delayq and of libraries, and its line."""
    frames = [
        found
        for found in traceback.walk_tb(error.__traceback__)
        if not _is_ours(found[0]) and not found[0].f_code.co_filename.startswith((*_LIBRARIES, "<frozen "))
    ]
    return frames[-1] if frames else None


def _place(error: BaseException) -> str | None:
    found = innermost(error)
    return _named(*found) if found else None


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_DELAYQ)


def _named(frame: FrameType, line: int) -> str:
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname} line {line}"


def _source(frame: FrameType, line: int) -> str:
    return linecache.getline(frame.f_code.co_filename, line, frame.f_globals)


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_CHARS]

"""Option types: durations, instants, rates, headers, payloads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import FAILED, CommandError
from delayq.cli.formats import clean, instant_ms, rate_per_second
from delayq.contract.json_text import strict_json
from delayq.contract.problems import quote
from delayq.durations import duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BYTES = 64 << 20  # of a file or stdin: four times the largest payload that a queue can allow
CUT = 40

DOCUMENT = click.Path(path_type=Path, readable=False)
"""A file that open() may refuse: access(2) denies it to a process that reads by ambient capabilities."""


def options(*those: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds these options to a command, in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(those):
            command = each(command)
        return command

    return add


def examples(*lines: str) -> str:
    """Return the end of a command's help. QUEUE is a name in them, so that `kubectl dq` can show them, too."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def confirm(question: str, hint: str) -> None:
    """Ask on a terminal; CommandError with `hint` without one, and if the answer is no."""
    if not sys.stdin.isatty():
        raise CommandError(f"{question} stdin is not a terminal; pass --yes", hint)
    if not click.confirm(clean(question), err=True):
        raise CommandError("nothing changed", code=FAILED)


class Read(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """An option type with a parse function, whose ValueError names the expected format."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        """`name`: metavar in the help."""
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 -- click's signature
        """Parse the value."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


MAX_DURATION_MS = 3660 * 86_400_000  # ten years, as the longest delay, deadline and debounce of a task


def span_ms(text: str) -> int:
    """Parse a duration from 0 to ten years; ValueError says what was expected."""
    found = duration_ms(text)
    if found > MAX_DURATION_MS:
        raise ValueError(f"expected at most 3660d, got {text[:CUT]}")
    return found


def length_ms(text: str) -> int:
    """Parse a duration from 1 ms to ten years; ValueError says what was expected."""
    found = span_ms(text)
    if not found:
        raise ValueError(f"expected at least 1ms, got {text[:CUT]}")
    return found


DURATION = Read("duration", span_ms)
LENGTH = Read("duration", length_ms)
INSTANT = Read("time", instant_ms)
RATE = Read("rate", rate_per_second)


PORT = click.IntRange(0, 65535)
LOG_LEVEL = click.Choice(["debug", "info", "warning", "error"])


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"expected name=value, got {quote(text)}")
    return name, value


HEADER = Read("k=v", _header)


def when(delay_ms: int | None, due_ms: int | None) -> dict[str, int]:
    """Return the due time as arguments of Client; the default is now."""
    if delay_ms is not None and due_ms is not None:
        raise CommandError("--in and --at: expected one of them, got both")
    return {"due_ms": due_ms} if due_ms is not None else {"delay_ms": delay_ms or 0}


def payload(text: str, *, raw: bool) -> Any:  # noqa: ANN401 -- any JSON value, or bytes
    """Return PAYLOAD: the text itself, - for stdin, @file for a file's content."""
    content = _content(text)
    return content if raw else parsed(content, "PAYLOAD")


def parsed(content: bytes, what: str) -> Any:  # noqa: ANN401 -- any JSON value
    """Parse JSON; CommandError names the position of the error."""
    try:
        return strict_json(content)
    except ValueError as error:
        shown = content[:CUT].decode(errors="replace")
        raise CommandError(f"{what}: expected JSON, got {quote(shown)} ({error})", _hint(shown)) from None


def _hint(shown: str) -> str:
    if not shown:
        return "an empty payload is null, or --bytes ''"
    return """quote it for the shell, like '{"order": 7}'; a string is '"text"'; --bytes accepts any bytes"""


def _content(text: str) -> bytes:
    if text == "-":
        return _limited(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
    if text.startswith("@"):
        with Path(text[1:]).open("rb") as file:
            return _limited(file.read(MAX_BYTES + 1), text[1:])
    return os.fsencode(text)


def _limited(content: bytes, name: str) -> bytes:
    if len(content) > MAX_BYTES:
        raise CommandError(f"{name}: expected at most {MAX_BYTES:,} bytes, got more")
    return content


def headers(pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """Return the headers; None for none."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise CommandError("--header: expected each name once, got one twice")
    return found or None

"""What a person types, as option types: durations, instants, rates, headers, payloads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import Wrong
from delayq.cli.words import duration_ms, instant_ms, rate_per_second
from delayq.contract.problems import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BYTES = 64 << 20  # four times the largest payload a queue can allow: beyond, do not even read on
CUT = 40


def options(*those: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options, in this order."""

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(those):
            command = each(command)
        return command

    return give


class Read(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """An option's value, read by a function whose ValueError says what it expected."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        """`name` stands in the help."""
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 -- click's signature
        """Read it."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Read("duration", duration_ms)
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
    """Return the due time as Client takes it; without any, now."""
    if delay_ms is not None and due_ms is not None:
        raise Wrong("--in and --at: expected one of them, got both")
    return {"due_ms": due_ms} if due_ms is not None else {"delay_ms": delay_ms or 0}


def payload(text: str, *, raw: bool) -> Any:  # noqa: ANN401 -- any JSON value, or bytes
    """Read PAYLOAD: the text itself, - for stdin, @file for a file's content."""
    content = _content(text)
    return content if raw else parsed(content, "PAYLOAD")


def parsed(content: bytes, what: str) -> Any:  # noqa: ANN401 -- any JSON value
    """Read JSON; Wrong says where it ends to be JSON."""
    try:
        return strict_json(content)
    except ValueError as error:
        shown = content[:CUT].decode(errors="replace")
        raise Wrong(f"{what}: expected JSON, got {quote(shown)} ({error})", _hint(shown)) from None


def strict_json(content: bytes) -> Any:  # noqa: ANN401 -- as above
    """Read JSON as RFC 8259 has it: no NaN, no Infinity, no half characters; ValueError otherwise."""
    try:
        return json.loads(content.decode(), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _hint(shown: str) -> str:
    if not shown:
        return "an empty payload is null, or --bytes ''"
    return """quote it for the shell, like '{"order": 7}'; a text is '"text"'; --bytes takes anything"""


def _content(text: str) -> bytes:
    if text == "-":
        return _limited(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
    if text.startswith("@"):
        with Path(text[1:]).open("rb") as file:
            return _limited(file.read(MAX_BYTES + 1), text[1:])
    return os.fsencode(text)


def _limited(content: bytes, name: str) -> bytes:
    if len(content) > MAX_BYTES:
        raise Wrong(f"{name}: expected at most {MAX_BYTES:,} bytes, got more")
    return content


def headers(pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """Return the headers; None for none."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Wrong("--header: expected each name once, got one twice")
    return found or None

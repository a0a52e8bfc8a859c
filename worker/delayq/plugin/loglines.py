"""Logs without what handlers say, for payloads may be in it: delayq's own lines, and where tracebacks were. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq.plugin.scrub import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONSOLE: Final = re.compile(
    r"^\d\d:\d\d:\d\d\.\d{3} (?:debug|info|warning|error|critical) +(?P<event>\w+)(?P<rest>.*)$"
)
_FRAME: Final = re.compile(r'^\s*(?:Traceback \(most recent call last\):|File "[^"]+", line \d+, in \S+)')
_ENDING: Final = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout))\b")
_HANDLERS: Final = "handler_"
"""How the events begin that quote a handler."""

_LOGGERS: Final = ("delayq", "kopf")
_FOREIGN: Final = ("error", "trace", "output", "stderr", "stdout")
"""Fields of such an event that hold words of the handler."""


def own(text: str) -> str:
    """Return a log with delayq's own lines whole, and of others how many there were."""
    return "\n".join(_counted(text.splitlines()))


def _counted(lines: list[str]) -> Iterator[str]:
    left_out = 0
    for line in lines:
        kept = _kept(line)
        if kept is None:
            left_out += 1
            continue
        if left_out:
            yield _said(left_out)
        left_out = 0
        yield kept
    if left_out:
        yield _said(left_out)


def _said(count: int) -> str:
    return f"<{count} line{'' if count == 1 else 's'} that delayq did not write>"


def _kept(line: str) -> str | None:
    if line.startswith("{"):
        return _event(line)
    if found := _CONSOLE.match(line):
        quotes = found["event"].startswith(_HANDLERS)
        return f"{line[: found.start('rest')]}{_cut(found['rest'])}" if quotes else line
    if _FRAME.match(line):
        return line
    if found := _ENDING.match(line):
        return f"{found['type']}: {REDACTED}"
    return None


def _cut(rest: str) -> str:
    """Leave out fields that quote, and whatever follows them: a quotation may look like a field."""
    at = min((rest.find(f" {name}=") for name in _FOREIGN if f" {name}=" in rest), default=len(rest))
    return rest[:at] if at == len(rest) else f"{rest[:at]} {REDACTED}"


def _event(line: str) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    if not str(found.get("logger", "")).startswith(_LOGGERS):
        return None
    quotes = found["event"].startswith(_HANDLERS)
    return json.dumps(
        {name: _field(name, value, quotes=quotes) for name, value in found.items()}, ensure_ascii=False
    )


def _field(name: str, value: Any, *, quotes: bool) -> Any:  # noqa: ANN401 -- JSON
    if name == "trace" and isinstance(value, str):
        return own(value)
    if quotes and name in _FOREIGN:
        found = _ENDING.match(str(value))
        return f"{found['type']}: {REDACTED}" if found else REDACTED
    return value

"""Relay the output of a scanner, worker or reaper: its log events to the run's log, other lines to the display."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from delayq.errors import InvalidDocument
from delayq.local.process import STDERR

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID = 3  # the exit code of a process whose document or handler cannot be used; cli/exits.py
IMPORTED = 30  # the exit code of a check that has imported all handlers; a module may end the process with 0


class Relay:
    """The output parser of one of delayq's processes."""

    def __init__(self, name: str, said: Callable[[str, str], None], changed: Callable[[], None]) -> None:
        """`said` receives the process' name and each line that is not an event; `changed` runs when `led` changes."""
        self._name, self._said, self._changed = name, said, changed
        self._log = logging.getLogger("delayq.local.relay")
        self._has_started = False  # once, of all its starts
        self.repeated = 0  # runs that a guard skipped because the task had taken effect
        self.begin()

    def begin(self) -> None:
        """Reset for a new process."""
        self.port: int | None = None  # where it answers /metrics
        # Of a scanner: shards by queue. Its events name the queue only if it serves several.
        self.led: defaultdict[str, set[int]] = defaultdict(set)
        # Of a worker: the guard's error, empty while it serves, None before the first check.
        self.guard: str | None = None
        self._held: list[str] = []  # output before the start, which may explain a failed one

    def parse(self, stream: int, line: str) -> bool:
        """Relay a line; return True for the event `started`."""
        event = _event(line) if stream == STDERR else None
        if event is None:
            self._other(stream, line)
            return False
        self._note(event)
        self._pass_on(event)
        return bool(event["event"] == "started")

    def ended(self, code: int) -> None:
        """Raise InvalidDocument with the process' output if it rejects the document at its first start.

        Later, its files have changed, and may be repaired: a group goes on without it meanwhile.
        """
        self.port, self.guard = None, None
        self.led.clear()
        if code == INVALID and not self._has_started:
            raise InvalidDocument("\n".join(self._held) or f"{self._name} refuses the document")
        self._release()

    def _other(self, stream: int, line: str) -> None:
        if stream == STDERR and self.port is None:
            self._held.append(line)
        else:
            self._said(self._name, line)

    def _release(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self._said(self._name, line)

    def _note(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "started", "port": int(port)}:
                self.port, self._has_started = port, True
                self._release()
            case {"event": "guard_breaker_opened", "where": str(where), "error": str(why)}:
                self.guard = f"{why} ({where})"
            case {"event": "guard_checked" | "guard_breaker_closed"}:
                self.guard = ""
            case {"event": "duplicate_skipped", "logger": "delayq.worker.executor"}:
                self.repeated += 1
            case {"event": "leadership_acquired", "shard": int(shard)}:
                self.led[str(event.get("queue", ""))].add(shard)
                self._changed()
            case {"event": "leadership_lost", "shard": int(shard)}:
                self.led[str(event.get("queue", ""))].discard(shard)
                self._changed()

    def _pass_on(self, event: dict[str, Any]) -> None:
        level = logging.getLevelNamesMapping().get(str(event.pop("level", "")).upper(), logging.WARNING)
        if self._log.isEnabledFor(level):
            self._log.handle(_record(self._name, level, dict(event)))


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith('{"time"'):  # the start of delayq's JSON log; a handler may print JSON too
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _record(name: str, level: int, event: dict[str, Any]) -> logging.LogRecord:
    """Return the event as a log record with its own time, and the process' name as first field."""
    logger, text, time = (event.pop(field, "") for field in ("logger", "event", "time"))
    fields = {"process": name} | {key: value for key, value in event.items() if key != "process"}
    made = {"name": str(logger), "levelno": level, "levelname": logging.getLevelName(level), "msg": str(text)}
    record = logging.makeLogRecord({**made, "fields": fields})
    try:
        record.created = datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return record  # as of now
    return record

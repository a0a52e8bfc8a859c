"""Logs are events with fields: one JSON object a line for machines, one short line for people."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from delayq.service.terminal import escaped, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delayq.protocol.envelope import Task

LogFormat = Literal["json", "console"]
QUEUE: ContextVar[str] = ContextVar("queue")
"""Set where one process serves several queues: each event has the field `queue`."""
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_SILENCED = ("aiohttp.access", "asyncio")


def of_task(task: Task) -> dict[str, Any]:
    """Return the fields that name a task: its ID, and its kind and version if it has one."""
    kind = {"kind": task.kind, "version": task.kind_version} if task.kind else {}
    return {"task_id": task.id} | kind


class JsonFormatter(logging.Formatter):
    """{"time": …, "level": …, "event": …, fields …}."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; an exception is a field of it."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return escaped(_encode(line))


class ConsoleFormatter(logging.Formatter):
    """12:00:01.234 warning handler_failed id=order-7 attempt=2."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback below it when there is one."""
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = _fields(record)
        below = list(_raised(fields.pop("traceback", ())))
        if record.exc_info:
            below.append(self.formatException(record.exc_info))
        named = "".join(f" {name}={_on_one_line(value)}" for name, value in fields.items())
        line = f"{time} {record.levelname.lower():<7} {_on_one_line(record.getMessage())}{named}"
        return "\n".join([line, *map(safe, below)])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    queue = QUEUE.get(None)
    return ({} if queue is None else {"queue": queue}) | getattr(record, "fields", {})


def _raised(traceback: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of a handler's traceback, see failures.traceback_of()."""
    for each in traceback:
        yield f"    {_on_one_line(each['error'])}"
        yield from (f"      {_on_one_line(frame)}" for frame in each["frames"])


def _on_one_line(value: object) -> str:
    """Return a field without line breaks or escape sequences, because error texts are untrusted."""
    return "".join(char if char.isprintable() else " " for char in str(value).replace("\n", " | "))


def configure(style: LogFormat, level: str) -> None:
    """Log to stderr; standard output is for results."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in _SILENCED:
        logging.getLogger(name).setLevel(logging.WARNING)

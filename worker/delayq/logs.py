"""Logs are events with fields: one JSON object a line for machines, one short line for people."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["json", "console"]
_SILENCED = ("aiohttp.access", "asyncio")


class JsonFormatter(logging.Formatter):
    """{"time": …, "level": …, "event": …, fields …}."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; an exception is a field of it."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class ConsoleFormatter(logging.Formatter):
    """12:00:01.234 warning handler_failed id=order-7 attempt=2."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the trace below it when there is one."""
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(
            f" {name}={_on_one_line(value)}" for name, value in getattr(record, "fields", {}).items()
        )
        line = f"{time} {record.levelname.lower():<7} {record.getMessage()}{fields}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def _on_one_line(value: object) -> str:
    """Return a field without line breaks or escape sequences: error texts are written by whatever failed."""
    return "".join(char if char.isprintable() else " " for char in str(value).replace("\n", " | "))


def configure(style: LogFormat, level: str) -> None:
    """Log to stderr: standard output is for results."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in _SILENCED:
        logging.getLogger(name).setLevel(logging.WARNING)

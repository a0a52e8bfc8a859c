"""Output of a run: the panel on stdout, logs on stderr. On a terminal the panel stays below all other output.

A closed terminal or pipe is not an error.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from delayq.service import logs
from delayq.service.logs import ConsoleFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.service.logs import LogFormat


class Plain:
    """Output to files and pipes: prints each changed line of the panel."""

    live = False  # whether a new panel replaces the old one

    def __init__(self) -> None:
        """Start with an empty panel."""
        self._shown: list[str] = []

    def show(self, lines: Sequence[str]) -> None:
        """Print the changed lines."""
        for at, line in enumerate(lines):
            if at >= len(self._shown) or line != self._shown[at]:
                _print(line)
        self._shown = list(lines)

    def write_line(self, name: str, text: str) -> None:
        """Print a line of a process."""
        _print(f"{name} | {text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class Terminal(Plain):
    """Output to a terminal: redraws the panel in place; other output scrolls above it."""

    live = True

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        super().__init__()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(self, lines: Sequence[str]) -> None:
        """Draw the panel."""
        with suppress(OSError):
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

    def write_line(self, name: str, text: str) -> None:
        """Print a line of a process above the panel."""
        self.write(f"{name} | {text}\n")

    def write(self, text: str) -> int:
        """Print log output above the panel, as a stream."""
        with suppress(OSError):
            self._console.print(Text(text.rstrip("\n")), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Do nothing: write() is unbuffered."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._live.stop()


class Lines(ConsoleFormatter):
    """Formats a log event with the name of its process."""

    def format(self, record: logging.LogRecord) -> str:
        """`12:00:01.234 warning worker-1 handler_failed id=order-7`."""
        fields = dict(getattr(record, "fields", {}))
        name = fields.pop("process", "run")
        shown = logging.makeLogRecord({**record.__dict__, "fields": fields})
        shown.msg, shown.args = f"{name:<9} {record.getMessage()}", None
        return super().format(shown)


def display(log_format: LogFormat, log_level: str) -> Plain:
    """Return the display for stdout, and send the log to stderr, on a terminal above the panel."""
    logs.configure(log_format, log_level)
    log = logging.getLogger().handlers[0]
    if log_format == "console":
        log.setFormatter(Lines())
    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        return Plain()
    terminal = Terminal(console)
    if isinstance(log, logging.StreamHandler) and sys.stderr.isatty():
        log.setStream(terminal)
    return terminal


def _print(line: str) -> None:
    with suppress(OSError):
        print(line, flush=True)  # noqa: T201 -- output of the command

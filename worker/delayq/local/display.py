"""How a run shows itself: the panel on stdout, logs on stderr. On a terminal the panel stays put below the rest.

The reader may be gone, because the terminal was closed or `| head` has ended: no reason to fail.
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
    """For files and pipes: each line of the panel when it has changed."""

    live = False  # whether a new panel replaces the old one

    def __init__(self) -> None:
        """Nothing shown yet."""
        self._shown: list[str] = []

    def show(self, lines: Sequence[str]) -> None:
        """Print what has changed."""
        for at, line in enumerate(lines):
            if at >= len(self._shown) or line != self._shown[at]:
                _print(line)
        self._shown = list(lines)

    def said(self, name: str, text: str) -> None:
        """Print it under its name."""
        _print(f"{name} | {text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""


class Terminal(Plain):
    """The panel is drawn anew in its place; everything else scrolls by above it."""

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

    def said(self, name: str, text: str) -> None:
        """Print it above the panel."""
        self.write(f"{name} | {text}\n")

    def write(self, text: str) -> int:
        """Be a stream for a log that goes to the same terminal."""
        with suppress(OSError):
            self._console.print(Text(text.rstrip("\n")), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._live.stop()


class Lines(ConsoleFormatter):
    """The short form of an event, behind the name of the process it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """`12:00:01.234 warning worker-1 handler_failed id=order-7`."""
        fields = dict(getattr(record, "fields", {}))
        name = fields.pop("process", "run")
        shown = logging.makeLogRecord({**record.__dict__, "fields": fields})
        shown.msg, shown.args = f"{name:<9} {record.getMessage()}", None
        return super().format(shown)


def display(log_format: LogFormat, log_level: str) -> Plain:
    """Choose by what stdout is, and send the log to stderr, around the panel where both are the same terminal."""
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
        print(line, flush=True)  # noqa: T201 -- standard output is what this is for

"""Restart a process until it is stopped: with backoff if it failed, or at its interval."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from delayq.local.process import Child, Command

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10.0
STEADY_SECONDS = 30.0  # a process that ran longer resets the backoff


class OutputParser(Protocol):
    """Parses the output of a process."""

    def begin(self) -> None:
        """Reset: the process starts or restarts."""

    def parse(self, stream: int, line: str) -> bool:
        """Parse a line; return True if it reports that the process is ready."""

    def ended(self, code: int) -> None:
        """Handle an unexpected exit; raise if a restart is useless."""


class Keeper:
    """Starts a process, and restarts it: with exponential backoff if it failed."""

    def __init__(
        self,
        command: Callable[[], Command],
        name: str,
        parser: OutputParser,
        every_seconds: float | None = None,
    ) -> None:
        """`command` is called before each start.

        With `every_seconds`, the process ends by itself, and starts again so long after its start.
        """
        self.name, self._command, self._parser, self._every_seconds = name, command, parser, every_seconds
        self.started = asyncio.Event()  # the process is ready
        self._stopping = asyncio.Event()
        self._child: Child | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start; the task ends when the process has stopped for good."""
        self.task = asyncio.create_task(self.run(), name=self.name)
        return self.task

    def stop(self) -> None:
        """Send SIGTERM, and do not restart the process. A second call hurries a worker."""
        self._stopping.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, and do not restart the process."""
        self._stopping.set()
        self._send(signal.SIGKILL)

    async def run(self) -> None:
        """Restart the process until stop(), or until the parser raises."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._once()
            if self._stopping.is_set():
                return
            self._parser.ended(code)
            ran = time.monotonic() - began
            if code == 0 and self._every_seconds is not None:
                failures = 0
                await self._pause(self._every_seconds - ran)
                continue
            failures = 1 if ran > STEADY_SECONDS else failures + 1
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            fields = {"process": self.name, "by": ended_by(code), "restart_in_seconds": pause}
            log.warning("process_exited", extra={"fields": fields})
            await self._pause(pause)

    async def _once(self) -> int:
        self._parser.begin()
        try:
            child = await Child.start(self._command(), self._on_line)
        except OSError as error:  # no memory or process ID available now
            log.error("process_not_started", extra={"fields": {"process": self.name, "error": str(error)}})  # noqa: TRY400 -- a traceback would not help
            return 127
        self._child = child
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._child = None
            self.started.clear()

    def _on_line(self, stream: int, line: str) -> None:
        if self._parser.parse(stream, line):
            self.started.set()

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send(number)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def ended_by(code: int) -> str:
    """`exit code 1`, or `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"

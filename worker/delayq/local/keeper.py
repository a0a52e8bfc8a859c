"""Keeping one process running until told otherwise."""

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
STEADY_SECONDS = 30.0  # a process that ran for longer starts again without the pauses of earlier failures


class Ear(Protocol):
    """Understands what a kind of process says."""

    def begin(self) -> None:
        """The process is started, once more perhaps."""

    def hear(self, stream: int, line: str) -> bool:
        """Take a line; True once it says that the process works."""

    def ended(self, code: int) -> None:
        """The process ended unasked; raise when starting it again would be no use."""


class Keeper:
    """Starts a process, and starts it again when it ends, ever more slowly."""

    def __init__(self, command: Callable[[], Command], name: str, ear: Ear) -> None:
        """`command` is asked before each start."""
        self.name, self._command, self._ear = name, command, ear
        self.started = asyncio.Event()  # the process says that it works
        self._stopping = asyncio.Event()
        self._child: Child | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends when the process has ended for good."""
        self.task = asyncio.create_task(self.run(), name=self.name)
        return self.task

    def stop(self) -> None:
        """Ask the process to end, and do not start it again. Asked twice, a worker hurries."""
        self._stopping.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it, ready or not."""
        self._stopping.set()
        self._send(signal.SIGKILL)

    async def run(self) -> None:
        """Keep it running until stop(), or until its ear raises."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._once()
            if self._stopping.is_set():
                return
            self._ear.ended(code)
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            await self._pause(code, min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1)))

    async def _once(self) -> int:
        self._ear.begin()
        try:
            child = await Child.start(self._command(), self._hear)
        except OSError as error:  # no memory or no process to spare, just now
            log.error("process_not_started", extra={"fields": {"process": self.name, "error": str(error)}})  # noqa: TRY400 -- says it all
            return 127
        self._child = child
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._child = None
            self.started.clear()

    def _hear(self, stream: int, line: str) -> None:
        if self._ear.hear(stream, line):
            self.started.set()

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send(number)

    async def _pause(self, code: int, seconds: float) -> None:
        fields = {"process": self.name, "by": ended_by(code), "restart_in_seconds": seconds}
        log.warning("process_exited", extra={"fields": fields})
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

"""A task, a document, and a pipe that tells who is still alive: what the tests of all handlers share."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from delayq.contract import DelayQueue, parse
from delayq.protocol.envelope import Task

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NO_SECRETS_DIR = "no-secrets"
PATIENCE_SECONDS = 20  # for what should take milliseconds: only a bug waits this long


def document(handler: Mapping[str, object], **more: object) -> DelayQueue:
    """A DelayQueue named orders with this handler."""
    spec = {"redis": {"standalone": {"host": "127.0.0.1"}}, "handler": dict(handler), **more}
    return parse(
        {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": "orders"},
            "spec": spec,
        }
    )


def a_task(
    body: bytes = b'{"order":7}',
    *,
    task_id: str = "order-7",
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
) -> Task:
    return Task(
        id=task_id,
        queue="orders",
        attempt=2,
        token=41,
        due_ms=1_700_000_060_000,
        scheduled_ms=1_700_000_000_000,
        body=body,
        content_type=content_type,
        headers=dict(headers or {}),
    )


class Lifeline:
    """A named pipe that children hold open: it ends when the last of them is dead, and not before."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._lines = asyncio.StreamReader()
        self._transport: asyncio.ReadTransport

    async def open(self) -> Lifeline:
        end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        loop = asyncio.get_running_loop()
        # Until a writer has come, reading would say "ended": so a writer of our own, until the first line.
        self._own = os.open(self.path, os.O_WRONLY)
        protocol = asyncio.StreamReaderProtocol(self._lines)
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(end, "rb"))
        return self

    async def line(self) -> str:
        """The next line that a child wrote."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = (await self._lines.readline()).decode().strip()
        self.close_own()
        return line

    async def ended(self) -> None:
        """Return when no process holds the pipe any more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._lines.read()

    def close_own(self) -> None:
        """End the pipe, also if no process has opened it yet."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1

    def close(self) -> None:
        self.close_own()
        self._transport.close()

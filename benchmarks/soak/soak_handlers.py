"""Handlers that write no ledger: a million runs would make it too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.errors import Bury, Retry

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task


async def do(task: Task) -> None:
    """The payload says what becomes of the task."""
    match task.payload:
        case "fail" if task.attempt == 1:
            raise ValueError("fails as it should, once")
        case "later" if task.attempt == 1:
            raise Retry("not now", delay_ms=5000)
        case "bury":
            raise Bury("never to succeed")

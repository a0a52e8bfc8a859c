"""Checks: whether a task whose lease expired still has to run. One kind per file, see docs/how-to/recovery.md.

Each kind is imported only when a document names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.errors import InvalidDocument
from delayq.recovery.checks.base import Answer, Check, CheckFailed

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.connection import Address
    from delayq.contract import DelayQueue

__all__ = ["CONCURRENCY", "Answer", "Check", "CheckFailed", "build"]

CONCURRENCY: Final = 8
"""Checks that one process runs at a time: they use a database or a service that others need, too."""


def build(queue: DelayQueue, address: Address, *, secrets_dir: Path) -> Check | None:
    """Return the check that the document names, None for none; InvalidDocument when it cannot be used."""
    spec = queue.spec.recovery.check
    if spec is None:
        return None
    if spec.python:
        from delayq.recovery.checks.python import PythonCheck  # noqa: PLC0415 -- see above

        return PythonCheck(spec.python.callable, concurrency=CONCURRENCY)
    if spec.http:
        from delayq.recovery.checks.http import HttpCheck  # noqa: PLC0415 -- see above

        # The caller enforces the timeout: this one only ends abandoned calls.
        seconds = 2 * spec.timeout_seconds
        return HttpCheck(spec.http, connections=CONCURRENCY, timeout_seconds=seconds, secrets_dir=secrets_dir)
    from delayq import guards  # noqa: PLC0415 -- see above
    from delayq.recovery.checks.ledger import LedgerCheck  # noqa: PLC0415 -- see above

    guard = guards.build(queue, address, secrets_dir=secrets_dir, apart=True)
    if guard is None:
        raise InvalidDocument("spec.recovery.check.guard: expected a spec.guard that keeps rows, got none")
    return LedgerCheck(guard)

"""What the tests of both guards that lock need: a run that does not end by itself, and a wait for what has no event."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.guards.sql_bank import task
from tests.processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.guards.locking import LockGuard, LockHold


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does; it has no event to wait for, so look often."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        await asyncio.sleep(0.01)


async def interrupted(guard: LockGuard, begun: Callable[[LockHold], object]) -> None:
    """Run a task that ends only when the test ends it; `begun` is called once it runs."""
    async with asyncio.timeout(PATIENCE_SECONDS), guard(task()) as hold:
        begun(hold)
        await asyncio.Event().wait()

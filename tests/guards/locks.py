"""What the tests of both guards that lock need: a task to run, and a way to wait for what they watch from outside."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from delayq.errors import GuardBusy
from delayq.protocol.envelope import Task

from tests.processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.guards.locking import LockGuard
    from delayq.guards.renewal import LockHold


def task(task_id: str = "order-7", token: int = 1) -> Task:
    return Task(task_id, "q", 1, token, 0, 0, b"{}", "application/json", {})


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does; it has no event to wait for, so look often."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        await asyncio.sleep(0.01)


async def interrupted(guard: LockGuard, begun: Callable[[LockHold], object]) -> None:
    """Run a task that ends only when somebody ends it; `begun` is called once it runs."""
    async with asyncio.timeout(PATIENCE_SECONDS), guard(task()) as hold:
        begun(hold)
        await asyncio.Event().wait()


async def contend(guards: Sequence[LockGuard], runs: int) -> int:
    """Have each guard run the same task several times, all of them at once; returns how many ran at most together."""
    inside = most = 0

    async def run(guard: LockGuard, token: int) -> None:
        nonlocal inside, most
        while True:
            try:
                async with guard(task(token=token)):
                    inside += 1
                    most = max(most, inside)
                    await guard.check()  # a round trip: others have every chance to come in
                    inside -= 1
                    return
            except GuardBusy:
                await asyncio.sleep(random.uniform(0, 0.02))  # as a queue would, only sooner

    async with asyncio.timeout(PATIENCE_SECONDS * 2):
        await asyncio.gather(*(run(guard, token) for guard in guards for token in range(runs)))
    return most

"""What nobody waits for: until a guard is closed, and not beyond."""

from __future__ import annotations

import asyncio

from delayq.guards.background import Background


async def test_what_the_work_starts_is_waited_for_too() -> None:
    """A release that is decided leaves the answers of slow servers to the background."""
    background, ended = Background(), asyncio.Event()

    async def answer() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        ended.set()

    async def release() -> None:
        background.start(answer())

    background.start(release())
    await background.drain(30)
    assert ended.is_set()


async def test_what_takes_too_long_is_cancelled() -> None:
    background = Background()
    work = background.start(asyncio.Event().wait())
    await background.drain(0.01)
    assert work.cancelled()
    await background.drain(30)  # nothing is left

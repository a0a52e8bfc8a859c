"""The first part that fails, ends all."""

from __future__ import annotations

import asyncio

import pytest
from delayq_operator.base.supervision import Parts


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise ZeroDivisionError


async def ends() -> None:
    pass


async def test_an_error_of_a_part_ends_all_and_its_end_does_not() -> None:
    parts = Parts()
    others = parts.start("others", forever())
    parts.start("ends", ends())
    parts.start("cancelled", forever()).cancel()
    running = asyncio.create_task(parts.unless(asyncio.Event(), forever()))
    await asyncio.sleep(0.01)
    assert not running.done()
    parts.start("fails", fails())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(running, 5)
    await parts.end()
    assert others.cancelled()


async def test_stop_ends_it_without_an_error() -> None:
    parts, stop = Parts(), asyncio.Event()
    part = parts.start("one", forever())
    stop.set()
    await asyncio.wait_for(parts.unless(stop, forever()), 5)
    await parts.end()
    assert part.cancelled()

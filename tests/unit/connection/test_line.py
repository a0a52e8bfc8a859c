"""Leaving a server that keeps somebody waiting, at the very moment that the wait ends by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq.connection import Address, Hints
from delayq.connection.line import Line
from delayq.connection.openers import One
from delayq.errors import Unavailable

from tests.unit.connection.silent import silent

if TYPE_CHECKING:
    from collections.abc import Callable


def at_its_end(timeout: asyncio.Timeout, told: Callable[[], None]) -> asyncio.Future[None]:
    """Tell right behind the time-out, before anybody has noticed it."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not timeout.expired():
            loop.call_soon(tell)
            return
        try:
            told()
            done.set_result(None)
        except RuntimeError as error:
            done.set_exception(error)

    tell()
    return done


async def begun(found: Callable[[], asyncio.Timeout | None]) -> asyncio.Timeout:
    for _ in range(100):
        if (timeout := found()) is not None:
            return timeout
        await asyncio.sleep(0)
    raise TimeoutError


async def test_a_line_that_is_dropped_as_its_time_out_ends_just_fails() -> None:
    with silent() as [hung]:
        line = Line(One(Address.from_url(f"redis://{hung}")), 0.05)
        sending = asyncio.create_task(line.send([("PING",)]))
        await at_its_end(await begun(lambda: line._timeout), line.drop)
        with pytest.raises(Unavailable):
            await sending
        await line.close()


async def test_a_wait_that_is_interrupted_as_it_ends_just_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.connection.hints.WATCHDOG_SECONDS", 0.05)
    with silent() as [hung]:
        hints = Hints(Address.from_url(f"redis://{hung}"))
        waiting = asyncio.create_task(hints.wait(["a"]))
        await at_its_end(await begun(lambda: hints._timeout), hints._interrupt)
        assert await waiting is None
        await hints.close()

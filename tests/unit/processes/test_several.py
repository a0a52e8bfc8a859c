"""Several queues in one process: how an error of one reaches the others."""

from __future__ import annotations

import asyncio

import pytest
from delayq.processes.runtime import Several


class Fails:
    loops = ()

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        if not self._at_once:
            await stop.wait()
        raise KeyError("orders")


class Drains:
    loops = ()
    drained = False

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        await stop.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        self.drained = True


@pytest.mark.parametrize("at_once", [False, True])
async def test_an_error_of_one_queue_is_raised_after_the_others_have_drained(*, at_once: bool) -> None:
    stop, mails = asyncio.Event(), Drains()
    if not at_once:
        stop.set()
    with pytest.raises(KeyError):
        async with asyncio.timeout(5):
            await Several({"orders": Fails(at_once=at_once), "mails": mails}).run(stop, asyncio.Event())
    assert mails.drained

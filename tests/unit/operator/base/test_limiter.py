"""Places are shared evenly, also with owners that hang, and none is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from delayq_operator.base.limiter import Limiter


class Line:
    """Those who want places, and the order in which they got them."""

    def __init__(self, number: int, each: int) -> None:
        self.places, self.got = Limiter(number, each), list[str]()
        self.tasks: list[asyncio.Task[None]] = []
        self.leave: dict[str, asyncio.Event] = {}

    async def wants(self, owner: str, *names: str) -> None:
        for name in names:
            self.leave[name] = asyncio.Event()
            self.tasks.append(asyncio.create_task(self._have(owner, name)))
        await self.settle()

    async def _have(self, owner: str, name: str) -> None:
        async with self.places.place(owner, 60):
            self.got.append(name)
            await self.leave[name].wait()

    async def leaves(self, name: str) -> None:
        self.leave[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_no_owner_has_more_than_its_share_and_the_next_place_goes_to_the_one_with_the_fewest() -> None:
    line = Line(3, each=2)
    await line.wants("shop", "s1", "s2", "s3", "s4")
    await line.wants("mail", "m1", "m2")
    assert line.got == ["s1", "s2", "m1"]
    for name in ("s1", "m1", "s2"):
        await line.leaves(name)
    assert line.got == ["s1", "s2", "m1", "s3", "m2", "s4"]


async def test_an_owner_that_waits_for_too_long_gets_none_and_blocks_no_other() -> None:
    places = Limiter(1, each=1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(places.place("shop", 1))
        for owner in ("shop", "mail"):
            with pytest.raises(TimeoutError):
                await stack.enter_async_context(places.place(owner, 0.01))
    for owner in ("shop", "mail"):  # the place that became free
        async with places.place(owner, 0.01):
            pass


@pytest.mark.parametrize("how", ["while it waits", "when it has just got one", "while it has one"])
async def test_who_is_cancelled_leaves_its_place_to_others(how: str) -> None:
    line = Line(1, each=1)
    await line.wants("shop", "first")
    await line.wants("shop", "second")
    if how == "while it has one":
        line.tasks[0].cancel()
    elif how == "when it has just got one":
        line.leave["first"].set()
        await asyncio.sleep(0)  # the first one leaves, and the second has not run yet
        await asyncio.sleep(0)
    line.tasks[1].cancel()
    await line.leaves("first")
    await line.wants("shop", "third", "fourth")
    assert line.got[-1] == "third", "there is one place again, and no more"

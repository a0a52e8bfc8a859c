"""Each queue is visited at its own pace, also if visits to others fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base.names import Key
from delayq_operator.cache.queues import Queues
from delayq_operator.polling import poller
from delayq_operator.polling.poller import Poller

from tests.unit.operator.views import body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ORDERS, MAILS = Key("shop", "orders"), Key("shop", "mails")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPREAD_SECONDS", "NEWCOMERS_SECONDS", "BROKEN_SECONDS"):
        monkeypatch.setattr(poller, name, 0.01)


class Visits:
    """To ORDERS and MAILS, counted."""

    def __init__(self, *, stuck: bool = False, broken: bool = False) -> None:
        self.stuck, self.broken = stuck, broken
        self.pause = 0.01
        self.of, self.queues = Counter[Key](), Queues(lambda _: None)
        for key in (ORDERS, MAILS):
            self.queues.seen(body(name=key.name, uid=key.name))
        self.rounds = Poller(self.queues, self.visit)

    async def visit(self, _client: object, key: Key) -> float:
        self.of[key] += 1
        if key == ORDERS and self.broken:
            raise ZeroDivisionError
        await asyncio.sleep(60 if key == ORDERS and self.stuck else 0)
        return self.pause

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not there():  # noqa: ASYNC110 -- there is no event
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.rounds.run())
        yield task
        assert not task.done()
        task.cancel()


async def test_neither_a_slow_visit_nor_one_that_crashes_holds_up_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow, broken = Visits(stuck=True), Visits(broken=True)
    async with slow.running(), broken.running():
        await slow.until(lambda: slow.of[MAILS] >= 5)
        await broken.until(lambda: broken.of[MAILS] >= 2 and broken.of[ORDERS] >= 2)
    assert slow.of[ORDERS] == 1
    assert set(caplog.messages) == {"scrape_crashed"}


async def test_a_queue_that_comes_is_visited_and_one_that_goes_is_not() -> None:
    visits = Visits()
    async with visits.running():
        visits.queues.gone(ORDERS, ORDERS.name)
        await visits.until(lambda: visits.of[MAILS] >= 3)
        assert not visits.of[ORDERS]
        visits.queues.seen(body(name="orders", uid="another"))
        await visits.until(lambda: visits.of[ORDERS] >= 1)
        visits.queues.gone(ORDERS, "another")
        await visits.until(lambda: set(visits.rounds._followed) == {MAILS})

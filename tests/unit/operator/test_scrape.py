"""Readings of scanners over HTTP: whole or not at all, and a queue is woken only when one says something new."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp import ClientSession, web
from delayq_operator import scrape
from delayq_operator.backlog import Reading
from delayq_operator.inventory import Inventory
from delayq_operator.names import Key
from delayq_operator.queues import Queues
from delayq_operator.scrape import FRESH_SECONDS, Scraper

from tests.unit.operator.fakes import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from delayq_operator.work import Work

ORDERS = Key("shop", "orders")
LINE = 'delayq_tasks{queue="orders",shard="0",state="delayed"} 3\n'


class Marks:
    """In the place of Work."""

    def __init__(self) -> None:
        self.of: Counter[Key] = Counter()

    def mark(self, key: Key) -> None:
        self.of[key] += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scrape, "time", clock)
    return clock


@pytest.fixture
def marks() -> Marks:
    return Marks()


@pytest.fixture
def scraper(clock: Clock, marks: Marks) -> Scraper:  # noqa: ARG001 -- the clock first
    inventory = Inventory(queues=Queues(marks.mark), children=None, pods=None)  # type: ignore[arg-type]
    return Scraper(inventory, cast("Work", marks))


def reading(delayed: int = 3, *, up: bool = True) -> Reading:
    labels = {"queue": "orders", "shard": "0"}
    samples = [
        ("delayq_shard_led", labels, 1.0),
        ("delayq_tasks", labels | {"state": "delayed"}, float(delayed)),
        ("delayq_redis_up", {"queue": "orders"}, float(up)),
    ]
    return Reading([samples])


def test_a_reading_counts_while_it_is_fresh(scraper: Scraper, clock: Clock) -> None:
    assert scraper.backlog(ORDERS) is None
    assert scraper._take(ORDERS, reading())
    found = scraper.backlog(ORDERS)
    assert found is not None
    assert found.scheduled == 3
    clock.now += FRESH_SECONDS + 1
    assert scraper.backlog(ORDERS) is None


def test_the_same_again_is_no_news(scraper: Scraper, clock: Clock) -> None:
    scraper._take(ORDERS, reading())
    clock.now += 5
    assert not scraper._take(ORDERS, reading())
    assert scraper._take(ORDERS, reading(4))
    assert scraper._take(ORDERS, reading(4, up=False))


def test_a_reading_after_a_long_silence_is_news(scraper: Scraper, clock: Clock) -> None:
    scraper._take(ORDERS, reading())
    clock.now += FRESH_SECONDS + 1
    assert scraper._take(ORDERS, reading())


def test_a_complaint_is_news_once_and_once_more_when_the_last_reading_is_too_old(
    scraper: Scraper, clock: Clock
) -> None:
    scraper._take(ORDERS, reading())
    assert scraper._complain(ORDERS, "no route")
    clock.now += 5
    assert not scraper._complain(ORDERS, "no route")
    assert scraper.backlog(ORDERS) is not None
    clock.now += FRESH_SECONDS
    assert scraper._complain(ORDERS, "no route")
    assert not scraper._complain(ORDERS, "no route")
    assert scraper.complaint(ORDERS) == "no route"
    assert scraper._take(ORDERS, reading())
    assert scraper.complaint(ORDERS) == ""


def test_scanners_that_are_gone_are_told_of_when_their_last_reading_is_too_old(
    scraper: Scraper, clock: Clock, marks: Marks
) -> None:
    """Nobody else would say: what was Connected would stay so until the next look that nothing asked for."""
    scraper._take(ORDERS, reading())
    scraper._expire(ORDERS)
    assert not marks.of
    clock.now += FRESH_SECONDS + 1
    for _ in range(3):
        scraper._expire(ORDERS)
    assert marks.of == {ORDERS: 1}


def test_a_forgotten_queue_leaves_nothing_behind(scraper: Scraper) -> None:
    scraper._take(ORDERS, reading())
    scraper._complain(ORDERS, "no route")
    scraper.forget(ORDERS)
    assert (scraper._last, scraper._complaints, scraper._erased) == ({}, {}, {})


# --- Over HTTP.


@pytest.fixture
async def fetch() -> AsyncIterator[Callable[[list[bytes]], Awaitable[str]]]:
    """Fetch an answer that comes in these pieces."""
    pieces: list[bytes] = []

    async def metrics(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        return response

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    async def text(served: list[bytes]) -> str:
        pieces[:] = served
        async with (
            ClientSession() as session,
            session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/metrics") as got,
        ):
            return await scrape._text(got)

    yield text
    await runner.cleanup()


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(
    fetch: Callable[[list[bytes]], Awaitable[str]],
) -> None:
    """256 shards are a mebibyte: it never comes in one piece, and half of it would be half of the tasks."""
    assert await fetch([LINE.encode()] * 5) == LINE * 5


async def test_an_answer_without_end_is_refused(
    fetch: Callable[[list[bytes]], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "LARGEST_BYTES", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        await fetch([b"x" * 60] * 100)

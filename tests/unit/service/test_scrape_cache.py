"""Answers that many share: one question in flight, and none while the last answer is fresh."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from delayq.service.scrape_cache import ScrapeCache


class Question:
    """Counts how often it was asked; answers when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may.wait()
        return number


async def test_all_who_ask_at_once_share_one_answer_which_is_kept_while_it_is_fresh() -> None:
    """Also where one of them gives up."""
    question = Question()
    recent = ScrapeCache(question.ask, fresh_seconds=3600)
    gives_up, *waiting = [asyncio.create_task(recent.get()) for _ in range(100)]
    await asyncio.sleep(0)
    gives_up.cancel()
    with suppress(asyncio.CancelledError):
        await gives_up
    question.may.set()
    assert set(await asyncio.gather(*waiting)) == {1}
    assert await recent.get() == 1
    old = ScrapeCache(question.ask, fresh_seconds=0)
    assert [await old.get(), await old.get()] == [2, 3]


async def test_an_error_is_shared_and_not_kept() -> None:
    answers = iter([OSError("away"), None])

    async def ask() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "here"

    recent = ScrapeCache(ask, fresh_seconds=3600)
    with pytest.raises(OSError, match="away"):
        await recent.get()
    assert await recent.get() == "here"

"""What answers of several servers mean, the margins of locks, and how background work ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from delayq.errors import DelayQError
from delayq.guards.background import Background
from delayq.guards.locking import busy_ms, validity_seconds
from delayq.guards.quorum import Poll
from delayq.guards.redlock import server_seconds


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        *(("yy..", None), ("yyy.", True), ("yynn", False)),  # of four, three are needed
        *(("yn.", None), ("yne", None), ("ye.", None), ("nn.", False)),
    ],
)
async def test_what_answers_mean(answers: str, verdict: bool | None) -> None:  # noqa: FBT001
    values = {"y": True, "n": False, "e": DelayQError("away")}
    tasks: list[Any] = [asyncio.get_running_loop().create_future() for _ in answers]
    for task, each in zip(tasks, answers, strict=True):
        if each in values:
            task.set_result(values[each])
    assert Poll(tasks, bool).verdict is verdict


def test_the_margins_of_locks() -> None:
    assert validity_seconds(30) == pytest.approx(29.698)
    assert [server_seconds(ttl) for ttl in (1, 5, 3600)] == [0.2, 1.0, 1.0]
    assert [busy_ms(ms, rand) for ms in (800, 3) for rand in (0, 1)] == [800, 640, 100, 120]


async def test_background_work_that_takes_too_long_is_cancelled() -> None:
    background = Background()
    work = background.start(asyncio.Event().wait())
    await background.drain(0.01)
    assert work.cancelled()

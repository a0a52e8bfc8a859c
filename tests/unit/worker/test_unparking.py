"""When a worker returns parked tasks: as many as it can run, and seldom while other workers park them again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands
from delayq.worker.unparking import Unparking

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.worker.slots import Slots

APP = {("push", 1): None}


class Redis:
    """Answers each call with how many tasks were returned, and how many are left."""

    def __init__(self, *replies: tuple[int, int] | Exception) -> None:
        self.replies, self.limits = list(replies), list[int]()

    async def answers(self, calls: list[Any]) -> list[object]:
        self.limits += [int(call.arguments[call.arguments[0] + 1]) for call in calls]
        return [self.replies.pop(0) for _ in calls]


def unparking(redis: Redis, kinds: Any = APP, *, free: int = 8, may_claim: bool = True) -> Unparking:  # noqa: ANN401
    slots = SimpleNamespace(free=free, may_claim=may_claim)
    return Unparking(Commands("orders"), cast("AsyncConnection", redis), cast("Slots", slots), kinds)


async def pauses(service: Unparking, looks: int) -> list[float]:
    """Each pause without its spread."""
    return [await service.step() for _ in range(looks)]


async def test_while_none_comes_back_it_returns_what_it_can_run_look_after_look() -> None:
    redis = Redis((8, 92), (8, 84), (3, 81), (0, 81))
    quick, also, *slow = await pauses(unparking(redis), 4)
    assert quick == also == 0.02
    assert all(3.75 <= pause <= 5 for pause in slow), "the 81 are of other kinds"
    assert redis.limits == [8] * 4


async def test_while_other_workers_park_them_again_it_looks_less_and_less_often() -> None:
    redis = Redis((8, 100), *[(8, 100)] * 6, (8, 92), (8, 84))
    found = await pauses(unparking(redis), 9)
    for pause, expected in zip(found, [0.02, 5, 10, 20, 40, 60, 60, 0.02, 0.02], strict=True):
        assert pause == expected if expected < 1 else 0.75 * expected <= pause <= expected


@pytest.mark.parametrize(("free", "may_claim"), [(0, True), (-1, True), (8, False)])
async def test_a_worker_that_cannot_run_them_returns_none(free: int, may_claim: bool) -> None:  # noqa: FBT001
    redis = Redis()
    assert await pauses(unparking(redis, free=free, may_claim=may_claim), 1) == [5.0]


@pytest.mark.parametrize("kinds", [None, {("", 0): None}])
async def test_without_an_app_it_looks_once_a_minute(kinds: object) -> None:
    [pause] = await pauses(unparking(Redis((0, 0)), kinds), 1)
    assert 45 <= pause <= 60


async def test_an_error_is_reported_and_many_slots_are_one_batch() -> None:
    redis = Redis((250, 9000), Unavailable("redis", "gone"))
    service = unparking(redis, free=1000)
    assert await pauses(service, 1) == [0.02]
    with pytest.raises(Unavailable):
        await service.step()
    assert redis.limits == [250, 250]

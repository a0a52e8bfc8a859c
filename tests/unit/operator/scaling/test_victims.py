"""Costs are written before a number is lowered, seen before it is, and never keep it up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, Denied, NotFound, OperatorError
from delayq_operator.base.names import Key
from delayq_operator.scaling import victims
from delayq_operator.scaling.victims import MARK, Victims

from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.cache.pod import Pod
    from delayq_operator.cache.pods import Pods
    from delayq_operator.kube.api import Api

KEY = Key("shop", "orders")


class World:
    """Workers, what they say they run, and an API server that takes their costs."""

    def __init__(self, **busy: int | None) -> None:
        self.said = busy
        self.pods = {name: replace(POD, name=name, uid=name, component="worker", ready=True) for name in busy}
        self.written: dict[str, str] = {}
        self.refuse: dict[str, OperatorError] = {}
        self.seen, self.marks = True, asyncio.Event()
        self.victims = Victims(
            cast("Api", self), cast("Pods", self), self.busy, lambda _key: self.marks.set()
        )

    def of(self, _key: Key) -> list[Pod]:
        return list(self.pods.values())

    async def busy(self, _key: Key, pods: list[Pod]) -> dict[str, int]:
        said = {pod.name: self.said[pod.name] for pod in pods}
        return {name: number for name, number in said.items() if number is not None}

    async def apply(
        self, kind: names.Kind, body: dict[str, Any], *, manager: str, force: bool
    ) -> dict[str, Any]:
        assert (kind, manager, force) == (names.POD, names.VICTIMS, False)
        assert body["metadata"]["uid"]
        name, cost = (
            body["metadata"]["name"],
            body["metadata"].get("annotations", {}).get(names.DELETION_COST, ""),
        )
        if name in self.refuse:
            raise self.refuse[name]
        self.written[name] = cost
        if self.seen:
            self.pods[name] = replace(self.pods[name], cost=cost)
        return body

    async def named(self, replicas: int) -> dict[str, str]:
        """See to it that the number can be lowered; the costs that were written for that."""
        self.written = {}
        if not self.victims.named(KEY, replicas):
            async with asyncio.timeout(10):
                await self.marks.wait()
            assert self.victims.named(KEY, replicas)
        return self.written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(victims, "SEEN_SECONDS", 0.3)
    monkeypatch.setattr(victims, "WRITE_SECONDS", 0.3)


async def test_as_many_as_have_to_go_are_marked_and_nobody_else() -> None:
    assert await World(a=3, b=0, c=1, d=9).named(2) == {"b": MARK, "c": MARK}


async def test_who_was_marked_and_has_more_to_do_by_now_is_not_any_more() -> None:
    world = World(a=3, b=0, c=1)
    assert await world.named(2) == {"b": MARK}
    world.victims.forget(KEY)
    world.marks.clear()
    world.said |= {"a": 0, "b": 2}
    assert await world.named(2) == {"a": MARK, "b": ""}
    assert {name: pod.cost for name, pod in world.pods.items()} == {"a": MARK, "b": "", "c": ""}


async def test_who_is_marked_already_is_not_marked_again() -> None:
    world = World(a=3, b=0, c=1)
    world.pods["b"] = replace(world.pods["b"], cost=MARK)
    assert await world.named(1) == {"c": MARK}


async def test_who_does_not_say_is_taken_to_be_busy() -> None:
    assert await World(a=3, mute=None).named(1) == {"a": MARK}


async def test_of_those_that_have_as_little_to_do_the_youngest_goes() -> None:
    world = World(old=0, young=0, middle=0)
    for name, created_at in {"old": 10.0, "young": 30.0, "middle": 20.0}.items():
        world.pods[name] = replace(world.pods[name], created_at=created_at)
    assert await world.named(1) == {"young": MARK, "middle": MARK}


@pytest.mark.parametrize(("theirs", "marked"), [("1000", {"b"}), ("-5", set()), ("x", {"b"})])
async def test_a_cost_of_somebody_elses_counts_and_stays(theirs: str, marked: set[str]) -> None:
    """Who is dear to them stays, though it is idle; who goes first by their word leaves nobody else to go."""
    world = World(a=0, b=2)
    world.pods["a"] = replace(world.pods["a"], cost=theirs)
    if theirs == "x":
        world.said["a"] = 3
    assert (await world.named(1)).keys() == marked
    assert world.pods["a"].cost == theirs


@pytest.mark.parametrize("replicas", [0, 2, 5])
async def test_when_all_go_or_none_that_is_ready_nobody_has_to_be_picked(replicas: int) -> None:
    world = World(a=3, b=0)
    assert world.victims.named(KEY, replicas)
    assert world.written == {}


async def test_those_that_leave_or_are_not_ready_go_anyway() -> None:
    world = World(a=3, leaves=1, starts=0)
    world.pods["leaves"] = replace(world.pods["leaves"], leaving=True)
    world.pods["starts"] = replace(world.pods["starts"], ready=False)
    assert world.victims.named(KEY, 1)


@pytest.mark.parametrize(
    "error", [Conflict(409, "Conflict", "x"), NotFound(404, "NotFound", "x"), Denied(403, "Forbidden", "x")]
)
async def test_a_cost_that_is_refused_keeps_nothing_up(error: OperatorError) -> None:
    world = World(a=3, b=1, c=0)
    world.refuse["c"] = error
    assert await world.named(1) == {"b": MARK}, "each mark is right without the others"


async def test_a_watch_that_tells_of_nothing_keeps_nothing_up() -> None:
    world = World(a=3, b=1)
    world.seen = False
    assert await world.named(1) == {"b": MARK}


async def test_an_api_server_that_hangs_keeps_nothing_up() -> None:
    world = World(a=3, b=1)

    async def hang(*_: object, **__: object) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    world.apply = hang  # type: ignore[method-assign]
    assert await world.named(1) == {}


async def test_a_bug_keeps_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    world = World(a=3, b=1)
    world.said = {}
    await world.named(1)
    assert "deletion_costs_crashed" in caplog.messages


async def test_it_is_seen_to_once_at_a_time() -> None:
    world = World(a=3, b=1)
    assert [world.victims.named(KEY, 1) for _ in range(3)] == [False] * 3
    assert len(world.victims._running) == 1
    await world.named(1)
    assert world.victims._running == {}

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
from delayq_operator.scaling.victims import LOW_COST, Victims

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

    async def prepared(self, replicas: int) -> dict[str, str]:
        """See to it that the number can be lowered; the costs that were written for that."""
        self.written = {}
        if not self.victims.prepared(KEY, replicas):
            async with asyncio.timeout(10):
                await self.marks.wait()
            assert self.victims.prepared(KEY, replicas)
        return self.written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(victims, "SEEN_SECONDS", 0.3)
    monkeypatch.setattr(victims, "WRITE_SECONDS", 0.3)


Picked = dict[str, tuple[int | None, dict[str, Any]]]
PICKS: dict[str, tuple[Picked, int, set[str]]] = {
    "as many as have to go, and no others": (
        {"a": (3, {}), "b": (0, {}), "c": (1, {}), "d": (9, {})},
        2,
        {"b", "c"},
    ),
    "not who is marked already": ({"a": (3, {}), "b": (0, {"cost": LOW_COST}), "c": (1, {})}, 1, {"c"}),
    "who does not say is taken to be busy": ({"a": (3, {}), "mute": (None, {})}, 1, {"a"}),
    "the youngest of those that have as little to do": (
        {
            "old": (0, {"created_at": 10.0}),
            "young": (0, {"created_at": 30.0}),
            "other": (0, {"created_at": 20.0}),
        },
        1,
        {"young", "other"},
    ),
    # Who is dear to others stays, though it is idle; who goes first by their word leaves no other to go.
    "not who is dear to others": ({"a": (0, {"cost": "1000"}), "b": (2, {})}, 1, {"b"}),
    "none beside who goes by their word": ({"a": (0, {"cost": "-5"}), "b": (2, {})}, 1, set()),
    "a cost that is no number": ({"a": (3, {"cost": "x"}), "b": (2, {})}, 1, {"b"}),
}


@pytest.mark.parametrize("which", PICKS)
async def test_those_are_marked_that_have_the_least_to_do(which: str) -> None:
    pods, replicas, marked = PICKS[which]
    world = World(**{name: busy for name, (busy, _) in pods.items()})
    for name, (_, fields) in pods.items():
        world.pods[name] = replace(world.pods[name], **fields)
    assert await world.prepared(replicas) == dict.fromkeys(marked, LOW_COST)


async def test_who_was_marked_and_has_more_to_do_by_now_is_not_any_more() -> None:
    world = World(a=3, b=0, c=1)
    assert await world.prepared(2) == {"b": LOW_COST}
    world.victims.forget(KEY)
    world.marks.clear()
    world.said |= {"a": 0, "b": 2}
    assert await world.prepared(2) == {"a": LOW_COST, "b": ""}


@pytest.mark.parametrize("replicas", [0, 2, 5])
async def test_when_all_go_or_none_that_is_ready_none_has_to_be_picked(replicas: int) -> None:
    world = World(a=3, b=0, leaves=1, starts=0)
    world.pods["leaves"] = replace(world.pods["leaves"], leaving=True)
    world.pods["starts"] = replace(world.pods["starts"], ready=False)
    assert world.victims.prepared(KEY, replicas)
    assert world.written == {}


@pytest.mark.parametrize(
    "error", [Conflict(409, "Conflict", "x"), NotFound(404, "NotFound", "x"), Denied(403, "Forbidden", "x")]
)
async def test_a_cost_that_is_refused_keeps_nothing_up(error: OperatorError) -> None:
    world = World(a=3, b=1, c=0)
    world.refuse["c"] = error
    assert await world.prepared(1) == {"b": LOW_COST}, "each mark is right without the others"


async def test_neither_a_watch_that_is_late_nor_an_api_server_that_hangs_nor_a_bug_keeps_anything_up() -> (
    None
):
    late, hung, bug = World(a=3, b=1), World(a=3, b=1), World(a=3, b=1)
    late.seen = False
    assert await late.prepared(1) == {"b": LOW_COST}

    async def hang(*_: object, **__: object) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    hung.apply = hang  # type: ignore[method-assign]
    assert await hung.prepared(1) == {}
    bug.said = {}
    assert await bug.prepared(1) == {}


async def test_it_is_seen_to_once_at_a_time() -> None:
    world = World(a=3, b=1)
    assert [world.victims.prepared(KEY, 1) for _ in range(3)] == [False] * 3
    assert len(world.victims._running) == 1
    await world.prepared(1)
    assert world.victims._running == {}

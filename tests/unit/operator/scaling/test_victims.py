"""Costs are written before a number is lowered, seen before it is, and never keep it up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.kube.errors import Conflict, Denied, KubernetesError, NotFound
from delayq_operator.base.names import Key
from delayq_operator.scaling import victims
from delayq_operator.scaling.victims import LOW_COST, Victims, cost_changes

from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.cache.pod import Pod
    from delayq_operator.kube.api import Api

KEY = Key("shop", "orders")
Picked = dict[str, tuple[int | None, dict[str, Any]]]
PICKS: dict[str, tuple[Picked, int, dict[str, str]]] = {
    "a mark on one with more to do by now is removed": (
        {"a": (0, {}), "b": (2, {"cost": LOW_COST})},
        1,
        {"a": LOW_COST, "b": ""},
    ),
    "one that does not answer counts as busy": ({"a": (3, {}), "mute": (None, {})}, 1, {"a": LOW_COST}),
    "the youngest of those that have as little to do": (
        {"old": (0, {"created_at": 10.0}), "young": (0, {"created_at": 30.0})},
        1,
        {"young": LOW_COST},
    ),
    # A cost that another client set has precedence.
    "none beside one that another client lets go": ({"a": (0, {"cost": "-5"}), "b": (2, {})}, 1, {}),
    "a cost that is no number": ({"a": (3, {"cost": "x"}), "b": (2, {})}, 1, {"b": LOW_COST}),
}


@pytest.mark.parametrize("which", PICKS)
def test_those_are_marked_that_have_the_least_to_do(which: str) -> None:
    pods, number, costs = PICKS[which]
    busy = {name: tasks for name, (tasks, _) in pods.items() if tasks is not None}
    assert cost_changes([worker(name, **fields) for name, (_, fields) in pods.items()], busy, number) == costs


def worker(name: str, **fields: Any) -> Pod:  # noqa: ANN401 -- fields of Pod
    return replace(POD, name=name, uid=name, component="worker", **({"ready": True} | fields))


class World:
    """Workers, the tasks they report, and an API server that takes their costs."""

    def __init__(self, **busy: int) -> None:
        self.tasks, self.pods = busy, {name: worker(name) for name in busy}
        self.refuse: dict[str, KubernetesError] = {}
        self.seen, self.hangs, self.broken = True, False, False
        self.written: dict[str, str] = {}
        self.enqueued = asyncio.Event()
        self.victims = Victims(cast("Api", self), cast("Any", self), self.busy, lambda _: self.enqueued.set())

    def of(self, _key: Key) -> list[Pod]:
        return list(self.pods.values())

    async def busy(self, _key: Key, _pods: list[Pod]) -> dict[str, int]:
        if self.broken:
            raise ZeroDivisionError
        return self.tasks

    async def apply(self, _kind: object, body: dict[str, Any], *, manager: str, force: bool) -> None:  # noqa: ARG002
        assert not force  # the cost of another client stays
        await asyncio.sleep(60 if self.hangs else 0)
        metadata = body["metadata"]
        if metadata["name"] in self.refuse:
            raise self.refuse[metadata["name"]]
        (self.written[metadata["name"]],) = metadata["annotations"].values()
        if self.seen:
            self.pods[metadata["name"]] = replace(self.pods[metadata["name"]], cost=LOW_COST)

    async def prepared(self, replicas: int) -> dict[str, str]:
        """Prepare until the number can be lowered; the costs that were written for that."""
        assert [self.victims.prepared(KEY, replicas) for _ in range(3)] == [False] * 3
        assert len(self.victims._running) == 1
        async with asyncio.timeout(10):
            await self.enqueued.wait()
        assert self.victims.prepared(KEY, replicas)
        return self.written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(victims, "SEEN_SECONDS", 0.3)
    monkeypatch.setattr(victims, "WRITE_SECONDS", 0.3)


async def test_when_all_go_or_none_that_is_ready_none_has_to_be_picked() -> None:
    world = World(a=3, b=0, leaves=1, starts=0)
    world.pods |= {"leaves": worker("leaves", leaving=True), "starts": worker("starts", ready=False)}
    assert [world.victims.prepared(KEY, replicas) for replicas in (0, 2, 5)] == [True] * 3
    assert world.written == {}


async def test_neither_a_refusal_nor_a_late_watch_nor_an_api_server_that_hangs_nor_a_bug_keeps_a_number_up() -> (
    None
):
    refused, late, hung, bug = (World(**dict.fromkeys("abcdef", n)) for n in (1, 1, 1, 1))
    refused.refuse = {
        "a": Conflict(409, "Conflict", "x"),
        "b": NotFound(404, "NotFound", "x"),
        "c": Denied(403, "Forbidden", "x"),
    }
    late.seen, hung.hangs, bug.broken = False, True, True
    assert (await refused.prepared(1)).keys() == set("de"), "each mark is right without the others"
    assert (await late.prepared(1)).keys() == set("abcde")
    assert await hung.prepared(1) == await bug.prepared(1) == {}

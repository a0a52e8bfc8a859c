"""The witness fetches what kopf does not bring, and tells a silent kopf from an API server that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.kube.errors import KubernetesError, NotFound, Unavailable
from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.watch_verifier import PATIENCE, PERIOD_SECONDS, WatchVerifier

from tests.unit.operator.views import body

if TYPE_CHECKING:
    from delayq.kube.objects import Kind

ORDERS, BILLS = Key("shop", "orders"), Key("shop", "bills")
STORY = 10


class Api:
    """Reads DelayQueues."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[str, Any]] = {}
        self.error: KubernetesError | None = None
        self.asked = 0

    async def get(self, _kind: Kind, _namespace: str, name: str) -> dict[str, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        if name not in self.bodies:
            raise NotFound(404, "NotFound", name)
        return self.bodies[name]


class World:
    """A cluster, kopf and the witness."""

    def __init__(self) -> None:
        self.api, self.marked = Api(), set[Key]()
        self.queues = Queues(self.marked.add)
        self.watch_verifier = WatchVerifier(self.api, self.queues)  # type: ignore[arg-type]

    def change(self, version: int, name: str = "orders", uid: str = "u") -> dict[str, Any]:
        self.api.bodies[name] = body(name=name, resourceVersion=str(version), uid=uid)
        return self.api.bodies[name]

    def kopf(self, seen: dict[str, Any]) -> None:
        self.queues.seen(seen)
        metadata = seen["metadata"]
        self.watch_verifier.brought(Key("shop", metadata["name"]), int(metadata["resourceVersion"]))

    def watch(self, seen: dict[str, Any]) -> None:
        self.watch_verifier.seen(names.DELAY_QUEUE, seen)

    async def steps(self, number: int = STORY) -> None:
        for _ in range(number):
            await self.watch_verifier.step()


@pytest.fixture
def world() -> World:
    return World()


async def test_a_kopf_that_brings_nothing_is_behind_for_as_long_as_that_lasts(world: World) -> None:
    """What the operator wrote itself is owed too, and an outage of the API server is not kopf's fault."""
    one = world.change(1)
    world.kopf(one)
    world.watch(one)
    await world.steps()
    assert (world.api.asked, world.watch_verifier.behind_seconds) == (0, 0), "it brought this before us"
    two = world.change(5)
    world.queues.seen(two, ours=True)
    world.watch(two)
    world.api.error = Unavailable("connection refused")
    await world.steps()
    assert world.watch_verifier.behind_seconds == 0
    world.api.error = None
    await world.steps()
    assert world.watch_verifier.behind_seconds == STORY * PERIOD_SECONDS
    world.kopf(world.change(6))
    await world.steps(1)
    assert world.watch_verifier.behind_seconds == 0


async def test_of_what_we_have_already_only_one_is_asked_for_as_a_sign_of_life(world: World) -> None:
    """A thousand DelayQueues that kopf owes are fetched once, not twice a second."""
    for number in range(5):
        world.watch(world.change(number + 1, f"queue-{number}"))
    await world.steps(PATIENCE + 1)
    fetched = world.api.asked
    await world.steps()
    assert (fetched, world.api.asked) == (5, 5 + STORY)


async def test_one_that_went_while_it_was_fetched_does_not_come_back(world: World) -> None:
    world.watch(world.change(5, uid="first"))
    world.change(9, uid="second")  # which our watch has not told of
    await world.steps(PATIENCE + 1)
    assert world.queues.keys() == []


async def test_a_delayqueue_that_kopf_did_not_see_go_is_forgotten(world: World) -> None:
    world.kopf(world.change(1))
    world.watch(world.api.bodies["orders"])
    world.marked.clear()
    world.watch_verifier.gone(names.DELAY_QUEUE, ("shop", "orders"))
    assert (world.queues.keys(), world.marked) == ([], {ORDERS})


async def test_everything_is_listed_once_each_was_brought_or_fetched(world: World) -> None:
    world.watch(world.change(1))
    world.watch(world.change(2, "bills"))
    world.kopf(world.api.bodies["orders"])
    await world.steps(1)
    assert not world.watch_verifier.listed.is_set()
    await world.steps(PATIENCE + 1)
    assert world.watch_verifier.listed.is_set()
    assert world.queues.version(BILLS) == 2

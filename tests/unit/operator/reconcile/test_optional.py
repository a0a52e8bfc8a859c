"""Optional kinds are wanted while they are served and allowed, and never for longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base.errors import Denied, NotFound, Unavailable
from delayq_operator.base.supervision import Parts
from delayq_operator.cache.watches import Watches
from delayq_operator.kube.reflector import DENIED_SECONDS
from delayq_operator.reconcile.optional import OptionalKinds

from tests.unit.operator.fakes import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq_operator.base.errors import OperatorError
    from delayq_operator.base.names import Kind
    from delayq_operator.base.objects import Name, Object
    from delayq_operator.kube.api import Event

BOTH = {"PodMonitor", "PrometheusRule"}
DENIED = Denied(403, "Forbidden", "no")
MONITOR: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "orders", "resourceVersion": "1"}}


@dataclass
class Served:
    """An API server as far as kinds are concerned: what it serves, and what goes wrong with lists."""

    plurals: set[str] = field(default_factory=lambda: {"podmonitors", "prometheusrules"})
    broken: OperatorError | None = None
    lists: OperatorError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """Lists of these namespaces take until the event."""

    async def serves(self, kind: Kind) -> bool:
        if self.broken:
            raise self.broken
        return kind.plural in self.plurals

    async def pages(
        self, _kind: Kind, namespace: str, *, metadata_only: bool, **_: object
    ) -> AsyncIterator[Object]:
        if namespace in self.slow and not metadata_only:
            await self.slow[namespace].wait()
        if self.lists:
            raise self.lists
        yield {"items": [MONITOR], "metadata": {"resourceVersion": "7"}}

    async def watch(self, *_: object, **__: object) -> AsyncIterator[Event]:
        await self.ended.wait()
        raise self.lists or Unavailable("over")
        yield


@dataclass
class Referees:
    kinds: frozenset[str] = frozenset()


@dataclass
class Copy:
    """Children: what there is, and which kinds were wanted when it was told."""

    referees: Referees
    known: set[tuple[str, Name]] = field(default_factory=set)

    def seen(self, kind: Kind, body: Object) -> None:
        assert kind.kind in self.referees.kinds  # else the child would be deleted
        self.known.add((kind.kind, (body["metadata"]["namespace"], body["metadata"]["name"])))

    def gone(self, kind: Kind, name: Name, *, ours: bool = False) -> None:
        assert ours  # nobody took it away
        assert kind.kind not in self.referees.kinds  # else it would be made again
        self.known.discard((kind.kind, name))


class Cluster:
    """The optional kinds of a cluster, as the operator sees them."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.api, self.referees, self.marked = Served(), Referees(), 0
        self.parts, self.copy = Parts(), Copy(self.referees)
        self.watches = Watches(
            self.api,  # type: ignore[arg-type]
            self.parts,
            namespaces=namespaces,
        )
        self.optional = OptionalKinds(
            self.api,  # type: ignore[arg-type]
            watches=self.watches,
            children=self.copy,  # type: ignore[arg-type]
            referees=self.referees,  # type: ignore[arg-type]
            mark_all=self.mark,
        )

    def mark(self) -> None:
        self.marked += 1

    async def look(self) -> set[str]:
        """Look, and let what follows happen; which kinds are wanted then."""
        await self.optional.look()
        await turns()
        return set(self.referees.kinds)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nothing_is_wanted_before_all_of_it_was_listed() -> None:
    """Not in one namespace of two: what is in the other would be written without need, as it is not known yet."""
    cluster = Cluster(("shop", "test"))
    cluster.api.slow["test"] = asyncio.Event()
    assert await cluster.look() == set()
    assert (cluster.copy.known, cluster.marked) == (set(), 0)
    assert await cluster.look() == set()
    assert len(cluster.watches.reflectors) == 4
    cluster.api.slow["test"].set()
    await turns()
    assert cluster.referees.kinds == BOTH
    assert len(cluster.copy.known) == 2
    await cluster.parts.end()


async def test_what_is_dropped_before_all_was_listed_leaves_nothing_behind() -> None:
    cluster = Cluster(("shop", "test"))
    cluster.api.slow["test"] = asyncio.Event()
    await cluster.look()
    cluster.api.plurals.clear()
    everything = asyncio.create_task(cluster.watches.synced())
    assert await cluster.look() == set()
    await asyncio.wait_for(everything, 5)
    cluster.api.slow["test"].set()
    await turns()
    assert (cluster.referees.kinds, cluster.copy.known) == (frozenset(), set())
    assert (cluster.watches.reflectors, cluster.optional._early, cluster.parts._tasks) == ([], {}, set())


async def test_what_is_not_served_any_more_is_dropped_and_what_is_back_is_followed_again() -> None:
    cluster = Cluster()
    cluster.api.lists = DENIED
    assert await cluster.look() == set()
    assert cluster.watches.reflectors == []
    cluster.api.lists = None
    assert await cluster.look() == BOTH
    cluster.api.broken = Unavailable("connection refused")
    assert await cluster.look() == BOTH, "an API server that is away tells nothing"
    cluster.api.broken = None
    cluster.api.plurals.discard("podmonitors")
    assert await cluster.look() == {"PrometheusRule"}
    assert cluster.copy.known == {("PrometheusRule", ("shop", "orders"))}
    assert cluster.marked == 3
    cluster.api.plurals.add("podmonitors")
    assert await cluster.look() == BOTH
    await cluster.parts.end()


@pytest.mark.parametrize("answer", [DENIED, NotFound(404, "NotFound", "no such kind")])
async def test_a_kind_whose_watch_ends_is_dropped_and_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, answer: OperatorError
) -> None:
    clock = Clock()
    monkeypatch.setattr("delayq_operator.kube.reflector.time", clock)
    monkeypatch.setattr("delayq_operator.kube.reflector.LONGEST_RETRY_SECONDS", 0.0)
    cluster = Cluster(("shop", "test"))
    await cluster.look()
    cluster.api.lists = answer
    cluster.api.ended.set()
    await asyncio.sleep(0.05)
    if answer is DENIED:
        assert cluster.referees.kinds == BOTH  # an API server that just started denies everything for a while
        clock.now += DENIED_SECONDS + 1
        await asyncio.sleep(0.05)
    assert (cluster.referees.kinds, cluster.watches.reflectors) == (frozenset(), [])
    assert cluster.copy.known == set()
    assert not cluster.parts._failed.done()

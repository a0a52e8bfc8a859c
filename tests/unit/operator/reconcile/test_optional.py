"""A list of an optional kind that takes its time: nothing is wanted early, and nothing is left of it.

Kinds and rights that come and go: tests/cluster/test_modes.py and test_monitors.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delayq_operator.base.errors import Unavailable
from delayq_operator.base.supervision import Parts
from delayq_operator.cache.watches import Watches
from delayq_operator.reconcile.optional import OptionalKinds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq_operator.base.names import Kind
    from delayq_operator.base.objects import Name, Object
    from delayq_operator.kube.api import Event

BOTH = {"PodMonitor", "PrometheusRule"}
MONITOR: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "orders", "resourceVersion": "1"}}


@dataclass
class Served:
    """An API server as far as kinds are concerned."""

    plurals: set[str] = field(default_factory=lambda: {"podmonitors", "prometheusrules"})
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """Lists of these namespaces take until the event."""
    unavailable: bool = False

    async def serves(self, kind: Kind) -> bool:
        if self.unavailable:
            raise Unavailable("connection refused")
        return kind.plural in self.plurals

    async def pages(
        self, _kind: Kind, namespace: str, *, metadata_only: bool, **_: object
    ) -> AsyncIterator[Object]:
        if namespace in self.slow and not metadata_only:
            await self.slow[namespace].wait()
        yield {"items": [MONITOR], "metadata": {"resourceVersion": "7"}}

    async def watch(self, *_: object, **__: object) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        raise AssertionError
        yield


@dataclass
class Copy:
    """Children: what there is, and which kinds were wanted when it was told."""

    referents: SimpleNamespace
    known: set[tuple[str, Name]] = field(default_factory=set)

    def seen(self, kind: Kind, body: Object) -> None:
        assert kind.kind in self.referents.kinds  # else the child would be deleted
        self.known.add((kind.kind, (body["metadata"]["namespace"], body["metadata"]["name"])))

    def gone(self, kind: Kind, name: Name, *, ours: bool = False) -> None:
        assert ours  # no other client deleted it
        assert kind.kind not in self.referents.kinds  # else it would be made again
        self.known.discard((kind.kind, name))


class Cluster:
    """The optional kinds of a cluster, as the operator sees them."""

    def __init__(self, *namespaces: str) -> None:
        self.api, self.referents = Served(), SimpleNamespace(kinds=frozenset())
        self.parts, self.copy = Parts(), Copy(self.referents)
        parts: dict[str, Any] = {"children": self.copy, "referents": self.referents}
        api: Any = self.api
        self.watches = Watches(api, self.parts, namespaces=namespaces)
        self.optional = OptionalKinds(api, watches=self.watches, enqueue_all=lambda: None, **parts)

    async def refresh(self) -> set[str]:
        """Look, and let what follows happen; which kinds are wanted then."""
        await self.optional.refresh()
        await turns()
        return set(self.referents.kinds)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nothing_is_wanted_before_all_of_it_was_listed() -> None:
    """Not in one namespace of two: what is in the other would be written without need, as it is not known yet."""
    cluster = Cluster("shop", "test")
    cluster.api.slow["test"] = asyncio.Event()
    assert await cluster.refresh() == set()
    assert cluster.copy.known == set()
    assert await cluster.refresh() == set()
    assert len(cluster.watches.reflectors) == 4
    cluster.api.slow["test"].set()
    await turns()
    assert cluster.referents.kinds == BOTH
    assert len(cluster.copy.known) == 2
    cluster.api.unavailable = True
    assert await cluster.refresh() == BOTH
    await cluster.parts.end()


async def test_what_is_dropped_before_all_was_listed_leaves_nothing_behind() -> None:
    cluster = Cluster("shop", "test")
    cluster.api.slow["test"] = asyncio.Event()
    await cluster.refresh()
    cluster.api.plurals.clear()
    everything = asyncio.create_task(cluster.watches.synced())
    assert await cluster.refresh() == set()
    await asyncio.wait_for(everything, 5)
    cluster.api.slow["test"].set()
    await turns()
    assert (cluster.referents.kinds, cluster.copy.known) == (frozenset(), set())
    assert (cluster.watches.reflectors, cluster.optional._early, cluster.parts._tasks) == ([], {}, set())

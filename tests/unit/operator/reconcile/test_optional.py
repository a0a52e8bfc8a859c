"""A list of an optional kind that takes its time: nothing is wanted early, and nothing is left of it.

Kinds and rights that come and go: tests/cluster/test_modes.py and test_monitors.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.kube.errors import Unavailable
from delayq_operator.base.supervision import Parts
from delayq_operator.cache.watches import Watches
from delayq_operator.reconcile.optional import OptionalKinds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.kube.objects import Kind, Name, Object
    from delayq.kube.watching import Event

BOTH = {"PodMonitor", "PrometheusRule"}
MONITOR: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "orders", "resourceVersion": "1"}}


@dataclass
class Cluster:
    """An API server as far as kinds are concerned, and the children as the operator copies them."""

    plurals: set[str] = field(default_factory=set)
    listing: asyncio.Event = field(default_factory=asyncio.Event)
    """Lists of the namespace `slow` take until then."""
    unavailable: bool = False
    kinds: frozenset[str] = frozenset()
    known: set[tuple[str, Name]] = field(default_factory=set)

    @property
    def children(self) -> Cluster:
        """It is the cache of every kind, too."""
        return self

    @property
    def schedules(self) -> Cluster:
        return self

    async def serves(self, kind: Kind) -> bool:
        if self.unavailable:
            raise Unavailable("connection refused")
        return kind.plural in self.plurals

    async def pages(
        self, _kind: Kind, namespace: str, *, metadata_only: bool, **_: object
    ) -> AsyncIterator[Object]:
        if namespace == "slow" and not metadata_only:
            await self.listing.wait()
        yield {"items": [MONITOR], "metadata": {"resourceVersion": "7"}}

    async def watch(self, *_: object, **__: object) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        raise AssertionError
        yield

    def seen(self, kind: Kind, body: Object) -> None:
        assert kind.kind in self.kinds  # else the child would be deleted
        self.known.add((kind.kind, (body["metadata"]["namespace"], body["metadata"]["name"])))

    def gone(self, kind: Kind, name: Name, *, ours: bool = False) -> None:
        assert ours  # no other client deleted it
        assert kind.kind not in self.kinds  # else it would be made again
        self.known.discard((kind.kind, name))


async def test_a_kind_is_wanted_once_all_of_it_was_listed_and_one_that_goes_before_leaves_nothing() -> None:
    """Not before all namespaces are listed: what is in the last one would be written without need."""
    cluster, parts = Cluster(), Parts()
    api: Any = cluster
    watches = Watches(api, parts, namespaces=("shop", "slow"))
    optional = OptionalKinds(api, watches=watches, inventory=api, referents=api, enqueue_all=lambda: None)

    async def wanted() -> set[str]:
        """Look, and let what follows happen."""
        await optional.refresh()
        for _ in range(20):
            await asyncio.sleep(0)
        return set(cluster.kinds)

    cluster.plurals = {"podmonitors", "prometheusrules"}
    assert (await wanted(), await wanted(), len(watches.reflectors)) == (set(), set(), 4)
    cluster.plurals = set()
    everything = asyncio.create_task(watches.synced())
    assert await wanted() == set()
    await asyncio.wait_for(everything, 5)
    cluster.listing.set()
    assert (await wanted(), cluster.known, watches.reflectors, parts._tasks) == (set(), set(), [], set())
    cluster.listing.clear()
    cluster.plurals = {"podmonitors", "prometheusrules"}
    assert (await wanted(), cluster.known) == (set(), set())
    cluster.listing.set()
    assert (await wanted(), len(cluster.known)) == (BOTH, 2)
    cluster.unavailable = True
    assert await wanted() == BOTH
    await parts.end()

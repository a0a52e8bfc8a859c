"""Lists that fail, are denied, or take their time: what is served, what is wanted, and when the operator gives up.

Kinds and rights that come and go on a real API server: tests/cluster/test_modes.py and test_faults_rights.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq.kube.errors import Denied, KubernetesError, NotFound, Unavailable
from delayq_operator.base import names
from delayq_operator.cache.inventory import Inventory
from delayq_operator.kube.page import Page
from delayq_operator.reconcile import lists
from delayq_operator.reconcile.facts import FactSource
from delayq_operator.reconcile.lists import PATIENCE_SECONDS, Lists

from tests.unit.operator.fakes import Clock
from tests.unit.operator.views import body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.kube.objects import Kind, Object

DENIED: Final = Denied(403, "Forbidden", "cannot list")
ABSENT: Final = NotFound(404, "NotFound", "not served")
MONITORS: Final = {"PodMonitor", "PrometheusRule"}


class Cluster:
    """An API server as far as lists are concerned, and an operator that lists it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *namespaces: str) -> None:
        self.errors: dict[Kind, KubernetesError] = {}
        self.objects: dict[Kind, list[Object]] = {names.DELAY_QUEUE: [body(name="orders")]}
        self.wanted: list[set[str]] = []
        """The optional kinds as of each list of a namespace."""
        self.clock = Clock()
        monkeypatch.setattr(lists, "time", self.clock)
        monkeypatch.setattr(lists, "RETRY_SECONDS", 0.0)
        self.inventory, api = Inventory(lambda _: None), _as_any(self)
        self.facts = FactSource()
        self.enqueued = 0
        self.lists = Lists(
            api, self.inventory, self.facts, namespaces=namespaces, enqueue_all=self.enqueue_all
        )

    def enqueue_all(self) -> None:
        self.enqueued += 1

    async def pages(self, kind: Kind, namespace: str | None, **_: object) -> AsyncIterator[Page]:
        if kind in self.errors:
            raise self.errors[kind]
        self.wanted.append(set(self.facts.kinds))
        there = [
            each for each in self.objects.get(kind, ()) if namespace in (None, each["metadata"]["namespace"])
        ]
        yield Page(json.dumps({"items": there or None, "metadata": {"resourceVersion": "1000"}}).encode())


def _as_any(value: Any) -> Any:  # noqa: ANN401 -- a stand-in
    return value


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def monitor(namespace: str = "shop") -> Object:
    return {"metadata": {"namespace": namespace, "name": "orders", "uid": "m", "resourceVersion": "1"}}


async def test_all_is_listed_and_what_went_is_dropped(cluster: Cluster) -> None:
    assert await cluster.lists.step()
    assert len(cluster.inventory.queues.keys()) == 1
    cluster.objects.clear()
    assert await cluster.lists.step()
    assert cluster.inventory.queues.keys() == []
    assert cluster.lists.watchable.isdisjoint(names.OPTIONAL)
    assert cluster.lists.watchable >= set(names.REQUIRED)


async def test_a_list_without_an_answer_drops_nothing_and_is_not_complete(cluster: Cluster) -> None:
    await cluster.lists.step()
    cluster.errors[names.DEPLOYMENT] = Unavailable("connection refused")
    assert not await cluster.lists.step()
    assert len(cluster.inventory.queues.keys()) == 1


async def test_delayqueues_that_are_not_served_for_long_are_gone_and_may_come_back(
    cluster: Cluster,
) -> None:
    await cluster.lists.step()
    cluster.errors[names.DELAY_QUEUE] = ABSENT
    assert not await cluster.lists.step()
    assert len(cluster.inventory.queues.keys()) == 1, "an API server that just started may not know them yet"
    cluster.clock.now += PATIENCE_SECONDS + 1
    assert await cluster.lists.step()
    assert cluster.inventory.queues.keys() == []
    assert names.DELAY_QUEUE not in cluster.lists.watchable
    del cluster.errors[names.DELAY_QUEUE]
    assert await cluster.lists.step()
    assert names.DELAY_QUEUE in cluster.lists.watchable
    assert len(cluster.inventory.queues.keys()) == 1


@pytest.mark.parametrize("kind", [names.DELAY_QUEUE, names.DELAY_SCHEDULE, names.ROLE_BINDING, names.POD])
async def test_a_right_that_is_missing_for_long_ends_the_operator(cluster: Cluster, kind: Kind) -> None:
    """An API server that just started denies everything until it has read its own roles."""
    cluster.errors[kind] = DENIED
    assert not await cluster.lists.step()
    cluster.clock.now += PATIENCE_SECONDS - 1
    assert not await cluster.lists.step()
    del cluster.errors[kind]
    assert await cluster.lists.step()
    cluster.errors[kind] = DENIED
    assert not await cluster.lists.step()
    cluster.clock.now += PATIENCE_SECONDS + 1
    with pytest.raises(Denied):
        await cluster.lists.step()


async def test_an_optional_kind_that_is_denied_ends_nothing_but_itself(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """At once where it was never used, after some patience where it was; the log says it once."""
    cluster.errors[names.POD_MONITOR] = DENIED
    for _ in range(2):
        assert await cluster.lists.step()
    assert cluster.facts.kinds == {"PrometheusRule"}
    assert [record.message for record in caplog.records].count("kind_forbidden") == 1
    cluster.errors = {names.PROMETHEUS_RULE: DENIED}
    assert await cluster.lists.step()
    assert cluster.facts.kinds == {"PrometheusRule", "PodMonitor"}
    cluster.clock.now += PATIENCE_SECONDS + 1
    before = cluster.enqueued
    assert await cluster.lists.step()
    assert cluster.facts.kinds == {"PodMonitor"}
    assert cluster.enqueued == before + 1


async def test_a_kind_is_wanted_in_one_step_once_all_namespaces_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what is in the last one would be written without need, and what is in the first deleted."""
    cluster = Cluster(monkeypatch, "bank", "shop")
    cluster.errors = dict.fromkeys((names.POD_MONITOR, names.PROMETHEUS_RULE), ABSENT)
    await cluster.lists.step()
    assert not MONITORS & cluster.facts.kinds
    cluster.errors, cluster.objects[names.POD_MONITOR] = {}, [monitor("bank"), monitor("shop")]
    seen: list[tuple[bool, str]] = []
    monkeypatch.setattr(
        cluster.inventory.children,
        "seen",
        lambda kind, body: seen.append((kind.kind in cluster.facts.kinds, body["metadata"]["namespace"])),
    )
    await cluster.lists.step()
    assert cluster.facts.kinds >= MONITORS
    assert seen == [(True, "bank"), (True, "shop")]
    gone: list[str] = []
    monkeypatch.setattr(cluster.inventory.children, "gone", lambda kind, _: gone.append(kind.kind))
    cluster.errors = dict.fromkeys((names.POD_MONITOR, names.PROMETHEUS_RULE), ABSENT)
    await cluster.lists.step()
    assert gone == ["PodMonitor", "PodMonitor"]
    assert not MONITORS & cluster.facts.kinds

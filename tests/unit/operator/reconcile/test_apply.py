"""Which object a deletion means. What is written is tested on an API server, in tests/cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delayq.kube.errors import Conflict, NotFound
from delayq_operator.base import names
from delayq_operator.cache.inventory import Inventory
from delayq_operator.cache.resource import Resource
from delayq_operator.reconcile.apply import Applier, Outcome
from delayq_operator.reconcile.plan import Plan, plan
from delayq_operator.scaling.scaling import Scale

from tests.unit.operator.views import body, resource

ORDERS = resource()
ERRORS = [None, NotFound(404, "NotFound", "it"), Conflict(409, "Conflict", "uid")]


@pytest.mark.parametrize("error", ERRORS, ids=["taken", "gone", "another by now"])
async def test_only_that_very_object_is_deleted_and_the_rest_goes_on(error: Exception | None) -> None:
    """The uid is a precondition: an object that has its name by now stays."""
    deleted: list[tuple[str, str | None]] = []

    async def delete(_kind: object, _namespace: str, name: str, *, uid: str | None = None) -> None:
        deleted.append((name, uid))
        if error is not None:
            raise error

    inventory = Inventory(lambda _key: None)
    inventory.seen(names.DELAY_QUEUE, ORDERS.body)
    active = [{"kind": "Job", "name": f"orders-reaper-{number}", "uid": f"u-{number}"} for number in range(2)]
    owner = {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": ORDERS.uid}
    for kind, name in ((names.CRON_JOB, "orders-reaper"), (names.CONFIG_MAP, "orders-config")):
        metadata = {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "1"}
        owned = metadata | {"ownerReferences": [owner | {"controller": True}]}
        inventory.seen(kind, {"metadata": owned, "status": {"active": active}})
    applier = Applier(SimpleNamespace(delete=delete), inventory)  # type: ignore[arg-type]
    reaper, config = inventory.children.of(ORDERS.key).values()
    await applier.end_runs(reaper, "shop")
    await applier.delete(config, "shop")
    assert deleted == [("orders-reaper-0", "u-0"), ("orders-reaper-1", "u-1"), ("orders-config", "u")]
    assert list(inventory.children.of(ORDERS.key)) == [("CronJob", "orders-reaper")]


class Cluster:
    """An API server that keeps one Service, and an operator that applies it."""

    def __init__(self) -> None:
        self.live: dict[str, Any] | None = None
        self.version = 1
        self.inventory = Inventory(lambda _key: None)
        self.applier = Applier(self, self.inventory)  # type: ignore[arg-type]

    async def get(self, *_: object) -> dict[str, Any]:
        raise NotFound(404, "NotFound", "it")

    async def apply(self, _kind: object, wanted: dict[str, Any], **_: object) -> dict[str, Any]:
        self.version += 1
        self.live = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": str(self.version)}}
        return self.live

    async def delete(self, *_: object, **__: object) -> None:
        self.live = None

    def lose(self) -> None:
        """Let another client delete the Service."""
        assert self.live is not None
        self.version += 1
        self.live["metadata"]["resourceVersion"] = str(self.version)
        self.inventory.take(names.SERVICE, {"type": "DELETED", "object": self.live})

    async def reconcile(self, of: Resource, *, wanted: bool = True) -> Outcome:
        self.version += 1
        owner = {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "controller": True}
        metadata = {"name": "orders-metrics", "namespace": "shop", "uid": f"u{self.version}"}
        made = {
            "kind": "Service",
            "metadata": {**metadata, "ownerReferences": [{**owner, "uid": of.uid}], "labels": {}},
        }
        todo = plan([made] if wanted else [], self.inventory.children.of(of.key), of.uid)
        return await self.applier.apply(of, todo, SCALE)


SCALE = Scale(replicas=1, reason="", message="")


async def test_a_child_that_another_client_deleted_is_restored_and_one_that_we_deleted_is_created() -> None:
    """Each new DelayQueue gets created children, also one of a name that was there before."""
    cluster = Cluster()
    label, later = "Service orders-metrics", Resource(body(uid="later"))
    assert (await cluster.reconcile(ORDERS)).created == [label]
    cluster.lose()
    assert (await cluster.applier.apply(ORDERS, Plan(), SCALE)) == Outcome()  # while its spec is refused
    assert (await cluster.reconcile(ORDERS)).repaired == [label]
    assert (await cluster.reconcile(ORDERS, wanted=False)).pruned == [label]
    assert (await cluster.reconcile(ORDERS)).created == [label]
    cluster.lose()
    assert (await cluster.reconcile(later)).created == [label]
    cluster.lose()
    cluster.applier.forget(ORDERS.key)
    assert (await cluster.reconcile(later)).created == [label]

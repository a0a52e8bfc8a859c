"""Which object a deletion means. What is written is tested on an API server, in tests/cluster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from delayq.kube.errors import Conflict, NotFound
from delayq_operator.base import names
from delayq_operator.cache.inventory import Inventory
from delayq_operator.reconcile.apply import Applier

from tests.unit.operator.views import resource

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

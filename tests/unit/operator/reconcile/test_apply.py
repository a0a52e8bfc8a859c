"""Which object a deletion means. What is written is tested on an API server, in tests/cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, NotFound
from delayq_operator.cache.children import Children
from delayq_operator.cache.queues import Queues
from delayq_operator.reconcile.apply import Applier

from tests.unit.operator.views import resource

if TYPE_CHECKING:
    from delayq_operator.base.names import Kind
    from delayq_operator.cache.children import Child

ORDERS = resource()
NOT_FOUND, CONFLICT = NotFound(404, "NotFound", "it"), Conflict(409, "Conflict", "uid")


class World:
    """An applier whose API server answers each deletion with `error`."""

    def __init__(self, error: Exception | None) -> None:
        self.deleted: list[tuple[str, str | None]] = []
        self.error = error
        queues = Queues(lambda _key: None)
        queues.seen(ORDERS.body)
        self.children = Children(queues, lambda _key: None)
        self.applier = Applier(self, self.children)  # type: ignore[arg-type]

    async def delete(self, _kind: Kind, _namespace: str, name: str, *, uid: str | None = None) -> None:
        self.deleted.append((name, uid))
        if self.error is not None:
            raise self.error

    def child(self, kind: Kind, name: str, **fields: Any) -> Child:  # noqa: ANN401 -- JSON
        owner = {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": ORDERS.uid}
        metadata = {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "1"}
        metadata |= {"ownerReferences": [owner | {"controller": True}]}  # type: ignore[dict-item]
        self.children.seen(kind, {"metadata": metadata, **fields})
        return self.children.of(ORDERS.key)[kind.kind, name]


@pytest.mark.parametrize("error", [None, NOT_FOUND, CONFLICT], ids=["taken", "gone", "another by now"])
async def test_only_that_very_object_is_deleted_and_the_rest_goes_on(error: Exception | None) -> None:
    """The uid is a precondition: an object that has its name by now stays."""
    world = World(error)
    active = [{"kind": "Job", "name": f"orders-reaper-{number}", "uid": f"u-{number}"} for number in range(2)]
    await world.applier.end_runs(
        world.child(names.CRON_JOB, "orders-reaper", status={"active": active}), "shop"
    )
    await world.applier.delete(world.child(names.CONFIG_MAP, "orders-config"), "shop")
    assert world.deleted == [("orders-reaper-0", "u-0"), ("orders-reaper-1", "u-1"), ("orders-config", "u")]
    assert list(world.children.of(ORDERS.key)) == [("CronJob", "orders-reaper")]

"""A number of workers is carried out, or it is remembered that it was refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.scaling import Sample
from delayq_operator.reconcile.apply import Outcome, Scaled
from delayq_operator.reconcile.scaler import Scaler
from delayq_operator.scaling.scaling import scale

from tests.unit.operator.queues import queue
from tests.unit.operator.views import decided, resource

if TYPE_CHECKING:
    from delayq_operator.cache.children import Child

BOUNDS = {"maxReplicas": 10}


class World:
    """In the place of all that a number is carried out with."""

    def __init__(self, *, taken: bool, prepared: bool = True) -> None:
        self.taken, self.is_prepared = taken, prepared
        self.calls = list[tuple[object, ...]]()

    async def apply(self, _resource: object, _worker: object, wanted: Any, outcome: Outcome) -> None:  # noqa: ANN401
        self.calls.append(("written", wanted.replicas))
        if self.taken:
            outcome.scaled = Scaled(reason="ScaledUp", message="")
        else:
            outcome.failures.append("no")

    def prepared(self, _key: object, replicas: int) -> bool:
        self.calls.append(("prepared", replicas))
        return self.is_prepared

    async def scale(self, before: int, **tasks: int) -> list[tuple[object, ...]]:
        decision = decided(Sample(**tasks), replicas=before)  # type: ignore[arg-type]
        autoscaler = SimpleNamespace(
            carried_out=lambda _key, found, _now: self.calls.append(("carried out", found is decision)),
            refused=lambda _key, replicas: self.calls.append(("refused", replicas)),
        )
        victims = SimpleNamespace(prepared=self.prepared, forget=lambda _key: None)
        applier = cast("Any", SimpleNamespace(scale=self.apply))
        scaler = Scaler(applier, cast("Any", autoscaler), victims=cast("Any", victims))
        worker = cast("Child", SimpleNamespace(body={"spec": {"replicas": before}}))
        wanted = scale(queue(autoscaling=BOUNDS), before, decision)
        await scaler.scale(resource(), worker, wanted, Outcome())
        return self.calls


@pytest.mark.parametrize(
    ("taken", "then"), [(True, ("carried out", True)), (False, ("refused", 10))], ids=["taken", "refused"]
)
async def test_more_workers_are_asked_for_at_once(taken: bool, then: tuple[object, ...]) -> None:  # noqa: FBT001
    assert await World(taken=taken).scale(1, overdue=5_000) == [("written", 10), then]


async def test_fewer_are_once_it_is_settled_who_goes() -> None:
    assert await World(taken=True, prepared=False).scale(20) == [("prepared", 0)]
    assert (await World(taken=True).scale(20))[1:] == [("written", 0), ("carried out", True)]


async def test_the_same_number_is_neither_carried_out_nor_refused() -> None:
    assert await World(taken=False).scale(10, overdue=5_000) == [("written", 10)]

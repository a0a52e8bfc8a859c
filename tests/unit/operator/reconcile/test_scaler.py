"""A number of workers is carried out, or it is remembered that it was refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delayq.scaling import Sample
from delayq_operator.reconcile.apply import Outcome, Scaled
from delayq_operator.reconcile.scaler import Scaler
from delayq_operator.scaling.scaling import scale

from tests.unit.operator.queues import queue
from tests.unit.operator.views import decided, resource

BUSY, IDLE = Sample(overdue=5_000), Sample()


@pytest.mark.parametrize(
    ("before", "sample", "taken", "prepared", "calls"),
    [
        (1, BUSY, True, True, ["written 10", "carried out"]),
        (1, BUSY, False, True, ["written 10", "refused 10"]),
        (10, BUSY, False, True, ["written 10"]),  # the same number
        (20, IDLE, True, False, ["prepared 0"]),
        (20, IDLE, True, True, ["prepared 0", "written 0", "carried out"]),
    ],
)
async def test_more_workers_come_at_once_and_fewer_once_it_is_settled_which_go(
    before: int, sample: Sample, *, taken: bool, prepared: bool, calls: list[str]
) -> None:
    told: list[str] = []

    async def write(_resource: object, _worker: object, wanted: Any, outcome: Outcome) -> None:  # noqa: ANN401
        told.append(f"written {wanted.replicas}")
        outcome.scaled = Scaled(reason="ScaledUp", message="") if taken else None

    def prepare(_key: object, replicas: int) -> bool:
        told.append(f"prepared {replicas}")
        return prepared

    autoscaler: Any = SimpleNamespace(
        carried_out=lambda *_: told.append("carried out"),
        refused=lambda _key, replicas: told.append(f"refused {replicas}"),
    )
    applier: Any = SimpleNamespace(scale=write)
    victims: Any = SimpleNamespace(prepared=prepare, forget=lambda _key: None)
    worker: Any = SimpleNamespace(body={"spec": {"replicas": before}})
    wanted = scale(queue(autoscaling={"maxReplicas": 10}), before, decided(sample, replicas=before))
    await Scaler(applier, autoscaler, victims=victims).scale(resource(), worker, wanted, Outcome())
    assert told == calls

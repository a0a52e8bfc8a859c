"""A number of workers is carried out, or it is remembered that it was refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delayq.kube.errors import Invalid
from delayq.scaling import Sample
from delayq_operator.reconcile.apply import Outcome
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
    reported: list[str] = []

    async def write(_kind: object, body: Any, **_: object) -> None:  # noqa: ANN401
        reported.append(f"written {body['spec']['replicas']}")
        if not taken:
            raise Invalid(422, "Invalid", "replicas")

    def prepare(_key: object, replicas: int) -> bool:
        reported.append(f"prepared {replicas}")
        return prepared

    parts: Any = SimpleNamespace(
        apply=write,
        seen=lambda *_: None,
        carried_out=lambda *_: reported.append("carried out"),
        refused=lambda _key, replicas: reported.append(f"refused {replicas}"),
        prepared=prepare,
        forget=lambda _key: None,
    )
    worker: Any = SimpleNamespace(body={"spec": {"replicas": before}}, scaled=False, name="w", uid="u")
    wanted = scale(queue(autoscaling={"maxReplicas": 10}), before, decided(sample, replicas=before))
    outcome = Outcome()
    await Scaler(parts, parts, parts, parts).scale(resource(), worker, wanted, outcome)
    assert reported == calls
    assert (outcome.scaled is not None) == ("carried out" in calls)
    assert bool(outcome.failures) is ("written" in calls[-1] or "refused" in calls[-1])

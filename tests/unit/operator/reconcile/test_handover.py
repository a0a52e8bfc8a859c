"""What an HPA starts from: written once, only in mode External, and never over a number that is there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base.errors import Denied
from delayq_operator.reconcile.apply import Outcome
from delayq_operator.reconcile.handover import Handover
from delayq_operator.scaling.scaling import Scale

from tests.unit.operator.queues import queue
from tests.unit.operator.views import resource

if TYPE_CHECKING:
    from delayq_operator.base.names import Kind

EXTERNAL = {"autoscaling": {"mode": "External", "maxReplicas": 20}}
THREE = Scale(replicas=3, reason="External", message="3 workers")


class Api:
    def __init__(self, refuse: Exception | None = None) -> None:
        self.refuse = refuse
        self.applied: list[tuple[dict[str, Any], dict[str, Any]]] = []

    async def apply(self, _kind: Kind, body: dict[str, Any], **how: object) -> dict[str, Any]:
        if self.refuse:
            raise self.refuse
        self.applied.append((body, how))
        return body


def begin(api: Api, scale: Scale, **spec: Any) -> Outcome:  # noqa: ANN401  parts of a document
    outcome = Outcome()
    asyncio.run(Handover(api).begin(resource(), queue(**spec), scale, outcome))  # type: ignore[arg-type]
    return outcome


def test_the_number_there_is_is_written_if_nobody_else_wrote_meanwhile() -> None:
    api = Api()
    begin(api, THREE, **EXTERNAL)
    ((body, how),) = api.applied
    assert body["spec"] == {"worker": {"replicas": 3}}
    assert body["metadata"]["resourceVersion"] == resource().version
    assert how == {"manager": "delayq-scaler", "force": False}


@pytest.mark.parametrize(
    ("scale", "spec"),
    [
        (THREE, EXTERNAL | {"worker": {"replicas": 0}}),
        (replace(THREE, reason="Held", replicas=0), EXTERNAL | {"stopPolicy": "HoldAndDrain"}),
        (replace(THREE, reason="KeptWithinBounds"), {"autoscaling": {"maxReplicas": 20}}),
        (replace(THREE, reason="Fixed"), {}),
    ],
)
def test_otherwise_nothing_is_written(scale: Scale, spec: dict[str, Any]) -> None:
    api = Api()
    assert begin(api, scale, **spec) == Outcome()
    assert api.applied == []


def test_a_refusal_is_told() -> None:
    assert begin(Api(Denied(403, "Forbidden", "not you")), THREE, **EXTERNAL).failures == [
        "spec.worker.replicas, for an HPA to start from: not you."
    ]

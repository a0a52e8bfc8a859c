"""The operator's options are found out from what it made, and asked of it where no pod shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.cli.kubectl.setting import NO_IMAGE, UNKNOWN, guessed
from delayq_operator.desired import desired
from delayq_operator.reconcile.drift import stamped

from tests.unit.operator.queues import SETTING, facts, queue

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl
    from delayq.contract import DelayQueue

STATE: dict[str, Any] = {"check": {"python": {"callable": "shop.orders:state"}}}


OWN_LABELS = "own-labels=" + ",".join(f"{name}={value}" for name, value in SETTING.own_labels.items())


class Cluster:
    """In the place of kubectl: an operator's Deployment, if people may see it."""

    def __init__(self, *options: str) -> None:
        self.options, self.asked = options, 0

    def items(self, *_: str) -> list[dict[str, Any]]:
        self.asked += 1
        container = {"args": [f"--{each}" for each in self.options]}
        spec = {"template": {"spec": {"containers": [container]}}}
        return [{"metadata": {"namespace": "delayq-system"}, "spec": spec}] if self.options else []


def guess(cluster: Cluster, old: DelayQueue, new: DelayQueue) -> tuple[str, list[str]]:
    known = facts(old)
    children = {
        (body["kind"], body["metadata"]["name"]): stamped(body) for body in desired(old, SETTING, known)
    }
    setting, notes = guessed(cast("Kubectl", cluster), old, new, facts=known, children=children)
    return setting.worker_image, notes


def test_the_image_of_scanners_is_the_operators() -> None:
    cluster, old = Cluster(), queue(worker={"image": "shop:7"})
    assert guess(cluster, old, queue()) == (SETTING.worker_image, [])
    assert cluster.asked == 0


@pytest.mark.parametrize(
    ("options", "found"),
    [(("worker-image=theirs:1", OWN_LABELS), ("theirs:1", [])), ((), (UNKNOWN.worker_image, [NO_IMAGE]))],
)
def test_where_scanners_run_the_users_image_the_operator_is_asked_for_its_own(
    options: tuple[str, ...], found: tuple[str, list[str]]
) -> None:
    old = queue(worker={"image": "shop:7"}, reaper=STATE)
    assert guess(Cluster(*options), old, queue(worker={"image": "shop:7"})) == found

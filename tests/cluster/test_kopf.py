"""kopf on a real API server: it leaves nothing on objects, and a restart changes none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator
from tests.cluster.world import RECONCILES, World, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

PLURALS = (
    names.PLURAL,
    names.DELAY_SCHEDULE.plural,
    *(kind.plural for kind in names.CHILDREN),
)


def objects(world: World) -> dict[str, str]:
    """The whole cache of the operator, by path."""
    return {
        f"{plural}/{body['metadata']['name']}": json.dumps(body, sort_keys=True)
        for plural in PLURALS
        for body in world.items(plural)
    }


@pytest.mark.parametrize("queues", [5, pytest.param(1000, marks=pytest.mark.full)])
def test_after_a_restart_every_object_is_the_same_to_the_byte_and_none_has_anything_of_kopf(
    cluster: ControlPlane, kubeconfig: Path, namespace: str, queues: int
) -> None:
    args = ("--no-leader-election", "--resync-seconds=1000")
    with running(Operator.fork(kubeconfig, namespace, *args)) as operator:
        world = World(cluster, operator, namespace)
        for number in range(queues):
            policy = "Delete" if number % 2 else "Retain"
            world.create(f"queue-{number}", reaper={"suspend": True}, deletionPolicy=policy, schedules={})
        kind = {"apiVersion": names.API_VERSION, "kind": names.DELAY_SCHEDULE.kind}
        spec: dict[str, Any] = {"queueRef": {"name": "queue-0"}, "everySeconds": 3600}
        world.make(names.DELAY_SCHEDULE.plural, {**kind, "metadata": {"name": "hourly"}, "spec": spec})
        patience = 30 + queues
        eventually(lambda: len(world.items("cronjobs")) == queues, timeout_s=patience, what="all are made")
        eventually(lambda: world.there("rolebindings", "queue-0-scanner"), what="the rights of its scanners")
        for number in range(queues):
            world.settle(f"queue-{number}")
        eventually(lambda: operator.metric("delayq_operator_workqueue_depth") == 0, timeout_s=patience)
    before = objects(world)
    made = {path.partition("/")[0] for path in before}
    assert made >= {
        names.PLURAL,
        names.DELAY_SCHEDULE.plural,
        "deployments",
        "cronjobs",
        "configmaps",
        "rolebindings",
    }
    assert [path for path, text in before.items() if "kopf" in text] == []
    finalizers = {
        json.dumps(world.queue(f"queue-{number}")["metadata"].get("finalizers")) for number in range(queues)
    }
    assert finalizers == {"null", json.dumps([names.ERASE_FINALIZER])}
    with running(Operator.fork(kubeconfig, namespace, *args)) as operator:
        done = lambda: operator.metric(RECONCILES, result="done") >= queues  # noqa: E731 -- short
        eventually(done, timeout_s=patience, what="all are reconciled")
    after = objects(world)
    assert {path: (text, after.get(path)) for path, text in before.items() if after.get(path) != text} == {}
    assert after.keys() == before.keys()

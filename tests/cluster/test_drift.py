"""Another client changes a child: our fields are restored at once with an event, others stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.harness.rest import APPLY, MERGE, STRATEGIC
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.cluster.world import World


WITHIN_S: Final = 5
ENV: Final = {"name": "worker", "env": [{"name": "SHOP", "value": "eu"}]}
SPEC: Final[dict[str, Any]] = {
    "networkPolicy": {"enabled": True},
    "worker": {"replicas": 2, "template": {"spec": {"containers": [ENV]}}},
}

WORKER: Final = ("deployments", "orders-worker")


def pod(**container: Any) -> Object:  # noqa: ANN401  parts of a container
    """A patch of the worker's container."""
    return {"spec": {"template": {"spec": {"containers": [{"name": "worker", **container}]}}}}


CONFIG: Final = ("configmaps", "orders-config")
SERVICE: Final = ("services", "orders-metrics")
EDITS: Final[dict[str, tuple[tuple[str, str], Object]]] = {
    "image": (WORKER, pod(image="evil/worker:1")),
    "document removed": (CONFIG, {"data": None}),
    "policy opened": (("networkpolicies", "orders-delayq"), {"spec": {"ingress": [{}]}}),
    "all labels": (WORKER, {"metadata": {"labels": None}}),
    "schedule, suspension, owner": (
        ("cronjobs", "orders-reaper"),
        {"spec": {"schedule": "@yearly", "suspend": True}, "metadata": {"ownerReferences": None}},
    ),
    "our mark": (SERVICE, {"metadata": {"annotations": {"delayq.dev/applied": None}}}),
}


@pytest.fixture
def drifting(world: World) -> World:
    """A namespace with a DelayQueue that has every kind of child."""
    world.start(**SPEC)
    return world


def wanted(body: Object) -> Object:
    """What the operator says of an object: without what the API server and Kubernetes' controllers add."""
    metadata = {
        field: body["metadata"].get(field) or {} for field in ("labels", "annotations", "ownerReferences")
    }
    metadata["annotations"].pop("deployment.kubernetes.io/revision", None)
    rest = {field: value for field, value in body.items() if field not in ("metadata", "status")}
    return {"metadata": metadata, **rest}


def repairs(world: World) -> int:
    """How often the operator has reported a repair."""
    return sum(event["count"] for event in world.items("events", fieldSelector="reason=Repaired"))


def writes(world: World, mark: int) -> list[str]:
    """What was written since then, but for status."""
    world.nudge()
    return [words for words in world.written(mark) if "delayqueues" not in words]


def test_an_edited_child_is_put_right(drifting: World) -> None:
    """Every change of a child is undone within seconds, by one write, and an event describes it."""
    world = drifting
    for edit, ((plural, name), body) in EDITS.items():
        before, reported = wanted(world.get(plural, name)), repairs(world)
        mark = world.enqueue()
        kind = STRATEGIC if edit != "document removed" else MERGE
        changed = world.cluster.rest.patch(world.path(plural, name), body, kind)
        assert wanted(changed) != before, edit

        def as_before(where: tuple[str, str] = (plural, name), before: Object = before) -> bool:
            return wanted(world.get(*where)) == before

        eventually(as_before, timeout_s=WITHIN_S, what=f"{edit} is put right")
        eventually(lambda reported=reported: repairs(world) > reported, what=f"{edit} is reported")  # type: ignore[misc]
        assert writes(world, mark) == [f"patch {plural}/{name}"], edit
    world.event(
        "Repaired", "CronJob orders-reaper (metadata.ownerReferences[", "], spec.schedule, spec.suspend)"
    )
    although_our_mark_is_on_it(world)


def although_our_mark_is_on_it(world: World) -> None:
    """Who edits an object and keeps our mark on it, or replaces all of it, is noticed as well."""
    body = world.get(*WORKER)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "evil/worker:1"
    body["spec"]["replicas"] = 5
    body["metadata"]["annotations"]["delayq.dev/inputs"] = "not JSON"
    body["metadata"].pop("resourceVersion")
    world.cluster.rest.replace(world.path(*WORKER), body)

    def right() -> bool:
        now = world.get(*WORKER)
        inputs = now["metadata"]["annotations"]["delayq.dev/inputs"]
        image = now["spec"]["template"]["spec"]["containers"][0]["image"]
        return bool(inputs.startswith("{") and image == "delayq-worker:test" and now["spec"]["replicas"] == 2)

    eventually(right, timeout_s=WITHIN_S, what="it is as before")


def test_a_deleted_child_comes_back(drifting: World) -> None:
    """A deleted child is created again within seconds, once, and an event says so."""
    world = drifting
    for plural, name in (WORKER, CONFIG):
        first, reported = world.get(plural, name), repairs(world)
        mark = world.enqueue()
        world.delete(plural, name)

        def again(where: tuple[str, str] = (plural, name), first: Object = first) -> bool:
            return world.uid(*where) not in ("", first["metadata"]["uid"])

        eventually(again, timeout_s=WITHIN_S, what=name)
        eventually(lambda reported=reported: repairs(world) > reported, what=f"{name} is reported")  # type: ignore[misc]
        made = [f"patch {plural}/{name}"] * (2 if (plural, name) == WORKER else 1)  # and its number
        assert writes(world, mark) == made
        body = world.get(plural, name)
        assert body.get("spec", {}).get("replicas") == first.get("spec", {}).get("replicas")
    assert len(world.events("Created")) == 1


def test_foreign_fields_stay_and_a_container_is_reported(drifting: World) -> None:
    """Additions of another field manager are left alone, also when the spec changes; Degraded names a container."""
    world = drifting
    mark, path = world.enqueue(), world.path(*WORKER)
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "orders-worker",
            "labels": {"team": "shop"},
            "annotations": {"shop/owner": "ann"},
        },
        **pod(env=[{"name": "TRACE", "value": "1"}]),
    }
    world.cluster.rest.patch(path, theirs, APPLY, fieldManager="tracer")
    world.kubectl("rollout", "restart", "deployment/orders-worker")
    world.settle()
    proxy = {"name": "proxy", "image": "mesh/proxy"}
    injected = {"spec": {"template": {"spec": {"containers": [proxy]}}}}
    world.cluster.rest.patch(path, injected, STRATEGIC, fieldManager="mesh")
    reported = world.until("Degraded", "True", "UnmanagedFields", timeout_s=WITHIN_S)
    assert "container proxy of Deployment orders-worker" in reported["message"]
    world.event("UnmanagedFields", "proxy")
    assert writes(world, mark) == []
    assert world.events("Repaired") == []

    world.edit(worker={"concurrency": 3})
    world.event("RolledOut", "orders-worker", "spec.worker changed")
    now = world.get(*WORKER)
    assert now["metadata"]["labels"]["team"] == "shop"
    assert now["metadata"]["annotations"]["shop/owner"] == "ann"
    assert "kubectl.kubernetes.io/restartedAt" in now["spec"]["template"]["metadata"]["annotations"]
    containers = {each["name"]: each for each in now["spec"]["template"]["spec"]["containers"]}
    assert containers["worker"]["env"] == [*ENV["env"], {"name": "TRACE", "value": "1"}]
    assert "proxy" in containers
    removal = {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "$patch": "delete"}]}}}}
    world.cluster.rest.patch(path, removal, STRATEGIC, fieldManager="mesh")
    world.until("Degraded", "False", "AsExpected", timeout_s=WITHIN_S)

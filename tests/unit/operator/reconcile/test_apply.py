"""Plans carried out: what is told of each write, what is never written, and what a refusal leaves undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delayq.scaling import Sample, replayed, sentence
from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, Denied, Invalid, NotFound, Unavailable
from delayq_operator.cache.children import Child, Children
from delayq_operator.cache.queues import Queues
from delayq_operator.reconcile.apply import Applier, Outcome, Scaled
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.plan import plan
from delayq_operator.scaling.scaling import Scale

from tests.unit.operator.queues import UID
from tests.unit.operator.views import decided, resource

ORDERS = resource()
TWO = Scale(replicas=2, reason="AutoscalingDisabled", message="2 workers: spec.worker.replicas")
OWNER = [
    {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": UID, "controller": True}
]


class Api:
    """Takes what is applied and keeps it; refuses what it is told to."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.refuse: dict[str, Exception] = {}
        self.applied: list[tuple[str, str, dict[str, Any]]] = []
        self.deleted: list[tuple[str, str | None]] = []

    async def get(self, kind: names.Kind, _namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[kind.kind, name]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def apply(self, kind: names.Kind, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if name in self.refuse:
            raise self.refuse[name]
        self.applied.append((manager, name, body))
        before = self.objects.get((kind.kind, name), {"metadata": {"resourceVersion": "0"}})
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        metadata = {**before["metadata"], **body["metadata"], "uid": "u", "resourceVersion": version}
        if manager == names.SCALER:
            fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
            metadata["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
        spec = {**before.get("spec", {}), **body.get("spec", {})}
        self.objects[kind.kind, name] = {**before, **body, "metadata": metadata, "spec": spec}
        return self.objects[kind.kind, name]

    async def delete(self, _kind: names.Kind, _namespace: str, name: str, *, uid: str | None = None) -> None:
        self.deleted.append((name, uid))
        if name in self.refuse:
            raise self.refuse[name]


class World:
    """An applier with an API server and its copies."""

    def __init__(self) -> None:
        self.api = Api()
        queues = Queues(lambda _key: None)
        queues.seen(ORDERS.body)
        self.children = Children(queues, lambda _key: None)
        self.applier = Applier(self.api, self.children)  # type: ignore[arg-type]

    async def make(self, *wanted: dict[str, Any]) -> Outcome:
        todo = plan([stamped(body) for body in wanted], self.children.of(ORDERS.key), UID)
        return await self.applier.apply(ORDERS, todo, TWO)

    def child(self, kind: str, name: str) -> Child:
        return self.children.of(ORDERS.key)[kind, name]


@pytest.fixture
def world() -> World:
    return World()


def config(name: str = "orders-config", text: str = "a") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": OWNER},
        "data": {"queue.yaml": text},
    }


def worker(**inputs: str) -> dict[str, Any]:
    annotations = {names.INPUTS: json.dumps(inputs)}
    metadata = {
        "name": "orders-worker",
        "namespace": "shop",
        "ownerReferences": OWNER,
        "annotations": annotations,
    }
    template = {"metadata": {"annotations": {names.CHECKSUM: str(sorted(inputs.items()))}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": template},
    }


async def test_what_is_new_is_created_and_then_nothing_is_written(world: World) -> None:
    assert await world.make(config()) == Outcome(created=["ConfigMap orders-config"])
    assert await world.make(config()) == Outcome()
    assert len(world.api.applied) == 1


async def test_what_we_want_differently_is_changed_without_a_word(world: World) -> None:
    """The ConfigMap follows each edit of the spec: whoever made the edit knows."""
    await world.make(config())
    assert await world.make(config(text="b")) == Outcome()
    assert len(world.api.applied) == 2


async def test_what_somebody_else_changed_is_repaired_and_says_where(world: World) -> None:
    await world.make(config())
    edited = {**world.api.objects["ConfigMap", "orders-config"], "data": {"queue.yaml": "by hand"}}
    edited["metadata"] = {**edited["metadata"], "resourceVersion": "7"}
    world.children.seen(names.CONFIG_MAP, edited)
    assert await world.make(config()) == Outcome(repaired=["ConfigMap orders-config (data[queue.yaml])"])


async def test_what_somebody_deleted_is_repaired_not_created(world: World) -> None:
    await world.make(config())
    world.api.objects.clear()
    world.children.gone(names.CONFIG_MAP, ("shop", "orders-config"))
    outcome = await world.make(config())
    assert (outcome.created, len(outcome.repaired)) == ([], 1)


async def test_an_object_of_somebody_else_is_not_touched(world: World) -> None:
    for owners in (
        [],
        [{"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": "another"}],
    ):
        metadata = {
            "name": "orders-config",
            "namespace": "shop",
            "resourceVersion": "1",
            "ownerReferences": owners,
        }
        world.api.objects["ConfigMap", "orders-config"] = {"metadata": metadata}
        assert await world.make(config()) == Outcome(taken=["ConfigMap orders-config"])
    assert world.api.applied == []


async def test_our_own_object_that_the_watch_has_not_told_of_is_written_only_if_it_differs(
    world: World,
) -> None:
    await world.make(config())
    world.children = Children(Queues(lambda _key: None), lambda _key: None)  # as after a restart
    world.applier = Applier(world.api, world.children)  # type: ignore[arg-type]
    outcome = await world.make(config())
    assert (outcome.taken, outcome.created, len(world.api.applied)) == ([], [], 1)
    await world.make(config(text="b"))
    assert len(world.api.applied) == 2


async def test_what_is_refused_is_told_and_the_rest_is_done(world: World) -> None:
    world.api.refuse["orders-config"] = Invalid(422, "Invalid", "data: too long")
    outcome = await world.make(config(), config("orders-other"))
    assert outcome.failures == ["ConfigMap orders-config: data: too long."]
    assert outcome.created == ["ConfigMap orders-other"]


async def test_without_an_answer_nothing_goes_on(world: World) -> None:
    world.api.refuse["orders-config"] = Unavailable("connection refused")
    with pytest.raises(Unavailable):
        await world.make(config(), config("orders-other"))
    assert world.api.applied == []


@pytest.mark.parametrize("answer", [None, NotFound(404, "NotFound", "it"), Conflict(409, "Conflict", "uid")])
async def test_what_is_not_wanted_any_more_is_deleted_by_its_uid(
    world: World, answer: Exception | None
) -> None:
    await world.make(config(), config("orders-old"))
    if answer is not None:
        world.api.refuse["orders-old"] = answer
    assert await world.make(config()) == Outcome(pruned=["ConfigMap orders-old"])
    assert world.api.deleted == [("orders-old", "u")]
    assert list(world.children.of(ORDERS.key)) == [("ConfigMap", "orders-config")]


async def test_what_may_not_be_deleted_is_told(world: World) -> None:
    await world.make(config(), config("orders-old"))
    world.api.refuse["orders-old"] = Denied(403, "Forbidden", "cannot delete")
    assert await world.make(config()) == Outcome(failures=["ConfigMap orders-old: cannot delete."])


async def test_a_number_that_may_not_be_written_is_told(world: World) -> None:
    await world.make(worker(image="1"))
    world.api.refuse["orders-worker"] = Denied(403, "Forbidden", "cannot patch")
    outcome = Outcome()
    await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), TWO, outcome)
    assert outcome == Outcome(failures=["replicas of Deployment orders-worker: cannot patch."])


async def test_a_rollout_is_told_with_its_reason(world: World) -> None:
    await world.make(worker(**{"Secret shop-db": "1", "image": "shop:1"}))
    outcome = await world.make(worker(**{"Secret shop-db": "2", "image": "shop:1"}))
    assert outcome.rolled == ["Deployment orders-worker: Secret shop-db changed"]
    assert outcome.repaired == []


@pytest.mark.parametrize("inputs", ["", "no JSON", "[]", "null"])
async def test_inputs_that_somebody_edited_are_no_reason_to_fail(world: World, inputs: str) -> None:
    await world.make(worker(image="1"))
    body = world.api.objects["Deployment", "orders-worker"]
    body["metadata"]["annotations"][names.INPUTS] = inputs
    body["metadata"]["resourceVersion"] = "9"
    world.children.seen(names.DEPLOYMENT, body)
    outcome = await world.make(worker(image="1"))
    assert outcome.failures == []
    assert len(outcome.rolled) + len(outcome.repaired) <= 1


# --- Replicas.


async def test_a_worker_starts_with_its_replicas_and_then_the_scaler_owns_them(world: World) -> None:
    """Without them it would start with one, and with none it would wait for the scaler."""
    await world.make(worker(image="1"))
    outcome = Outcome()
    await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), TWO, outcome)
    await world.make(worker(image="2"))
    assert [(manager, body["spec"].get("replicas")) for manager, _, body in world.api.applied] == [
        (names.OPERATOR, 2),
        (names.SCALER, 2),
        (names.OPERATOR, None),
    ]
    assert outcome.scaled is None


async def test_the_same_number_is_not_written_again(world: World) -> None:
    await world.make(worker(image="1"))
    for _ in range(3):
        await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), TWO, Outcome())
    assert [manager for manager, _, _ in world.api.applied].count(names.SCALER) == 1


async def test_another_number_is_written_by_the_scaler_alone_and_told(world: World) -> None:
    await world.make(worker(image="1"))
    child = world.child("Deployment", "orders-worker")
    await world.applier.scale(ORDERS, child, TWO, Outcome())
    outcome, five = (
        Outcome(),
        Scale(replicas=5, reason="AutoscalingDisabled", message="5 workers: spec.worker.replicas"),
    )
    await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), five, outcome)
    assert outcome.scaled == Scaled(reason="ScaledUp", message="2 → 5 workers: spec.worker.replicas")
    _, _, body = world.api.applied[-1]
    assert body["spec"] == {"replicas": 5}
    assert body["metadata"]["uid"] == "u"  # that very Deployment, and no new one of that name


async def test_a_decision_is_told_with_what_it_was_made_from(world: World) -> None:
    """So that the event's words can be had again from its annotation."""
    await world.make(worker(image="1"))
    await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), TWO, Outcome())
    decision = decided(Sample(ready=2), replicas=2, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    none = Scale(replicas=0, reason="ValidMetricsFound", message=sentence(decision), decision=decision)
    outcome = Outcome()
    await world.applier.scale(ORDERS, world.child("Deployment", "orders-worker"), none, outcome)
    assert outcome.scaled is not None
    assert outcome.scaled.reason == "ScaledDown"
    assert sentence(replayed(outcome.scaled.record)) == outcome.scaled.message == sentence(decision)


async def test_runs_of_the_reaper_that_are_under_way_are_ended_those_very_ones(world: World) -> None:
    active = [{"kind": "Job", "name": f"orders-reaper-{number}", "uid": f"u-{number}"} for number in range(2)]
    world.api.refuse["orders-reaper-0"] = NotFound(404, "NotFound", "it has just ended")
    metadata = {"name": "orders-reaper", "namespace": "shop", "ownerReferences": OWNER}
    status = {"active": active}
    await world.make({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "status": status})
    await world.applier.end_runs(world.child("CronJob", "orders-reaper"), "shop")
    assert world.api.deleted == [("orders-reaper-0", "u-0"), ("orders-reaper-1", "u-1")]

"""Plans carried out: what is told of each write, what is never written, and what a refusal leaves undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, Denied, NotFound, Unavailable
from delayq_operator.cache.children import Child, Children
from delayq_operator.cache.queues import Queues
from delayq_operator.reconcile.apply import Applier, Outcome, Scaled
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.plan import plan
from delayq_operator.scaling.scaling import Scale

from tests.unit.operator.queues import UID
from tests.unit.operator.views import resource

ORDERS = resource()


def fixed(replicas: int) -> Scale:
    message = f"{replicas} workers: spec.worker.replicas"
    return Scale(replicas=replicas, reason="AutoscalingDisabled", message=message)


def owners(uid: str) -> list[dict[str, Any]]:
    owner = {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": uid}
    return [{**owner, "controller": True}]


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
        return await self.applier.apply(ORDERS, todo, fixed(2))

    async def scale(self, scale: Scale) -> Outcome:
        outcome = Outcome()
        await self.applier.scale(ORDERS, self.child("Deployment", "orders-worker"), scale, outcome)
        return outcome

    def edited(self, kind: names.Kind, name: str, **fields: Any) -> None:  # noqa: ANN401 -- JSON
        """Have another client change an object, and the watch tell of it."""
        live = self.api.objects[kind.kind, name] | fields
        live["metadata"] = live["metadata"] | {"resourceVersion": "77"}
        self.children.seen(kind, live)

    def child(self, kind: str, name: str) -> Child:
        return self.children.of(ORDERS.key)[kind, name]


@pytest.fixture
def world() -> World:
    return World()


def made(kind: names.Kind, name: str, uid: str = UID, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    metadata = {"name": name, "namespace": "shop", "ownerReferences": owners(uid), "annotations": {}}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def config(name: str = "orders-config", text: str = "a") -> dict[str, Any]:
    return made(names.CONFIG_MAP, name, data={"queue.yaml": text})


def worker(**inputs: str) -> dict[str, Any]:
    template = {"metadata": {"annotations": {names.CHECKSUM: str(sorted(inputs.items()))}}}
    body = made(names.DEPLOYMENT, "orders-worker", spec={"template": template})
    body["metadata"]["annotations"][names.INPUTS] = json.dumps(inputs)
    return body


async def test_it_tells_what_it_creates_and_repairs_and_nothing_of_an_edit_of_the_spec(world: World) -> None:
    assert await world.make(config()) == Outcome(created=["ConfigMap orders-config"])
    assert await world.make(config()) == Outcome()
    assert len(world.api.applied) == 1
    assert await world.make(config(text="b")) == Outcome()
    assert len(world.api.applied) == 2
    world.edited(names.CONFIG_MAP, "orders-config", data={"queue.yaml": "by hand"})
    repaired = Outcome(repaired=["ConfigMap orders-config (data[queue.yaml])"])
    assert await world.make(config(text="b")) == repaired
    world.api.objects.clear()
    world.children.gone(names.CONFIG_MAP, ("shop", "orders-config"))
    assert await world.make(config(text="b")) == Outcome(repaired=["ConfigMap orders-config"])


async def test_a_child_of_an_earlier_delayqueue_of_this_name_has_to_go_first(world: World) -> None:
    """The new children must not be garbage-collected with the old ones."""
    earlier = config()
    earlier["metadata"] |= {"ownerReferences": owners("earlier"), "uid": "u", "resourceVersion": "7"}
    world.children.seen(names.CONFIG_MAP, earlier)
    todo = plan([stamped(config())], world.children.of(ORDERS.key), UID)
    assert (todo.leaving, todo.changes, todo.prune) == ((world.child("ConfigMap", "orders-config"),), (), ())


async def test_our_own_object_that_the_watch_has_not_told_of_is_written_only_if_it_differs(
    world: World,
) -> None:
    await world.make(config())
    world.children = Children(Queues(lambda _key: None), lambda _key: None)  # as after a restart
    world.applier = Applier(world.api, world.children)  # type: ignore[arg-type]
    assert await world.make(config()) == Outcome()
    assert len(world.api.applied) == 1
    await world.make(config(text="b"))
    assert len(world.api.applied) == 2


async def test_what_is_refused_is_told_and_the_rest_is_done(world: World) -> None:
    await world.make(config("orders-old"), worker(image="1"))
    for name in ("orders-config", "orders-old", "orders-worker"):
        world.api.refuse[name] = Denied(403, "Forbidden", "no")
    outcome = await world.make(config(), config("orders-other"), worker(image="1"))
    assert outcome.failures == ["ConfigMap orders-config: no.", "ConfigMap orders-old: no."]
    assert outcome.created == ["ConfigMap orders-other"]
    assert (await world.scale(fixed(3))).failures == ["replicas of Deployment orders-worker: no."]


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


@pytest.mark.parametrize("inputs", ["", "no JSON", "[]", "null"])
async def test_inputs_that_a_client_edited_are_no_reason_to_fail(world: World, inputs: str) -> None:
    await world.make(worker(image="1"))
    world.api.objects["Deployment", "orders-worker"]["metadata"]["annotations"][names.INPUTS] = inputs
    world.edited(names.DEPLOYMENT, "orders-worker")
    outcome = await world.make(worker(image="1"))
    assert outcome.failures == []
    assert len(outcome.rolled) + len(outcome.repaired) <= 1


async def test_a_worker_starts_with_its_replicas_and_then_the_scaler_owns_them(world: World) -> None:
    """Without them it would start with one, and with none it would wait for the scaler."""
    await world.make(worker(image="1"))
    for _ in range(3):
        assert await world.scale(fixed(2)) == Outcome()
    await world.make(worker(image="2"))
    outcome = await world.scale(fixed(5))
    assert [(manager, body["spec"].get("replicas")) for manager, _, body in world.api.applied] == [
        (names.OPERATOR, 2),
        (names.SCALER, 2),
        (names.OPERATOR, None),
        (names.SCALER, 5),
    ]
    assert outcome.scaled == Scaled(reason="ScaledUp", message="2 → 5 workers: spec.worker.replicas")
    assert world.api.applied[-1][2]["metadata"]["uid"] == "u"  # that very Deployment, and no new one


async def test_runs_of_the_reaper_that_are_under_way_are_ended_those_very_ones(world: World) -> None:
    active = [{"kind": "Job", "name": f"orders-reaper-{number}", "uid": f"u-{number}"} for number in range(2)]
    world.api.refuse["orders-reaper-0"] = NotFound(404, "NotFound", "it has just ended")
    await world.make(made(names.CRON_JOB, "orders-reaper", status={"active": active}))
    await world.applier.end_runs(world.child("CronJob", "orders-reaper"), "shop")
    assert world.api.deleted == [("orders-reaper-0", "u-0"), ("orders-reaper-1", "u-1")]

"""Copies of the cluster: an older version never replaces a newer one, and everything finds its DelayQueue."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from typing import Any

import pytest
from delayq.contract import SpecError
from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.children import Children
from delayq_operator.cache.inventory import Inventory
from delayq_operator.cache.pod import Pods
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.workload import workload
from delayq_operator.desired import desired, erase_job
from delayq_operator.reconcile.drift import differs

from tests.unit.operator.queues import HOSTILE, RICH, SETTING, facts
from tests.unit.operator.queues import queue as parsed
from tests.unit.operator.views import body

ORDERS, BILLS = Key("shop", "orders"), Key("shop", "bills")


class Enqueued:
    """Counts who was marked."""

    def __init__(self) -> None:
        self.of: Counter[Key] = Counter()

    def __call__(self, key: Key) -> None:
        self.of[key] += 1

    def taken(self) -> dict[Key, int]:
        taken, self.of = dict(self.of), Counter()
        return taken


@pytest.fixture
def enqueued() -> Enqueued:
    return Enqueued()


def queue(name: str = "orders", version: int = 1, uid: str = "u1", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return body(name=name, resourceVersion=str(version), uid=uid, **more)


# --- DelayQueues.


@pytest.mark.parametrize(
    ("edit", "marked"),
    [
        ({}, {}),
        ({"generation": 8}, {ORDERS: 1}),
        ({"annotations": {names.SUSPEND_RECONCILIATION: "true"}}, {ORDERS: 1}),
        ({"deletionTimestamp": "now"}, {ORDERS: 1}),
    ],
)
def test_what_we_wrote_marks_nothing_unless_an_edit_came_just_before(
    enqueued: Enqueued, edit: dict[str, Any], marked: dict[Key, int]
) -> None:
    """The answer to our own write has it, and the watch will bring nothing newer."""
    inventory = Inventory(enqueued)
    inventory.seen(names.DELAY_QUEUE, queue(version=8))
    enqueued.taken()
    inventory.wrote(queue(version=10, **edit))
    inventory.seen(names.DELAY_QUEUE, queue(version=9, **edit))  # the watch, late
    inventory.seen(names.DELAY_QUEUE, queue(version=10, **edit))
    assert (enqueued.taken(), inventory.queues.version(ORDERS)) == (marked, 10)


def test_a_delayqueue_that_went_is_forgotten_and_the_end_of_an_earlier_one_is_none(
    enqueued: Enqueued,
) -> None:
    inventory = Inventory(enqueued)
    queues = inventory.queues
    inventory.seen(names.DELAY_QUEUE, queue(uid="u2"))
    enqueued.taken()
    inventory.ended(names.DELAY_QUEUE, ("shop", "orders"), "u1")
    assert (queues.keys(), enqueued.taken()) == ([ORDERS], {})
    inventory.wrote(queue(version=9, uid="u2"))
    inventory.ended(names.DELAY_QUEUE, ("shop", "orders"), "u2")
    for what, version in (("MODIFIED", 9), ("DELETED", 10)):  # the watch, late
        inventory.take(names.DELAY_QUEUE, {"type": what, "object": queue(version=version, uid="u2")})
    inventory.seen(names.DELAY_QUEUE, queue(version=9, uid="u2"))
    assert (queues.get(ORDERS), queues.keys(), queues.labelled("shop", "orders")) == (None, [], None)
    assert enqueued.taken() == {ORDERS: 1}


# --- Events and lists overtake each other.


def test_what_a_list_lacks_is_dropped_unless_it_is_newer_than_the_list(enqueued: Enqueued) -> None:
    """kopf delivers what changes while a list is read page by page."""
    inventory = Inventory(enqueued)
    for name, version in (("orders", 5), ("bills", 12)):
        inventory.take(names.DELAY_QUEUE, {"type": "ADDED", "object": queue(name, version, uid=name)})
    inventory.complete(names.DELAY_QUEUE, None, set(), version=10)
    assert inventory.queues.keys() == [BILLS]
    inventory.complete(names.DELAY_QUEUE, "other", set(), version=20)  # of a namespace that has none
    assert inventory.queues.keys() == [BILLS]


def test_a_list_does_not_bring_back_what_went_while_it_was_read(enqueued: Enqueued) -> None:
    """A later version does: an object can get its labels back."""
    inventory = Inventory(enqueued)
    for what, version in (("ADDED", 5), ("DELETED", 9)):
        inventory.take(names.DEPLOYMENT, {"type": what, "object": child(version=version)})
    inventory.seen(names.DEPLOYMENT, child(version=5))
    assert inventory.children.of(ORDERS) == {}
    inventory.seen(names.DEPLOYMENT, child(version=11))
    assert list(inventory.children.of(ORDERS)) == [REFERENCE]


def test_a_child_that_was_deleted_before_it_was_seen_is_missed(enqueued: Enqueued) -> None:
    """The operator has made it: kopf lists again after a 410, or its kind is only listed."""
    inventory = Inventory(enqueued)
    inventory.seen(names.POD_MONITOR, child("orders-delayq", version=5))
    inventory.complete(names.POD_MONITOR, None, set(), version=4)
    assert len(inventory.children.of(ORDERS)) == 1
    inventory.complete(names.POD_MONITOR, None, set(), version=6)
    assert inventory.children.of(ORDERS) == {}


def test_events_of_two_objects_of_one_name_may_arrive_in_either_order(enqueued: Enqueued) -> None:
    """kopf has one task for each UID."""
    inventory = Inventory(enqueued)
    for what, version, uid in (
        ("ADDED", 5, "u1"),
        ("ADDED", 9, "u2"),
        ("DELETED", 8, "u1"),
        ("ADDED", 7, "u1"),
    ):
        inventory.take(names.DELAY_QUEUE, {"type": what, "object": queue(version=version, uid=uid)})
    assert inventory.queues.uid(ORDERS) == "u2"
    inventory.take(names.DELAY_QUEUE, {"type": "DELETED", "object": queue(version=10, uid="u2")})
    assert inventory.queues.keys() == []


def test_an_object_that_did_not_change_enqueues_nothing(enqueued: Enqueued) -> None:
    """Each minute's list has them all."""
    inventory = Inventory(enqueued)
    for _ in range(2):
        inventory.seen(names.DELAY_QUEUE, queue())
        inventory.seen(names.DEPLOYMENT, child())
        inventory.seen(names.POD, pod())
    assert enqueued.taken() == {ORDERS: 3}


# --- Children.


def child(
    name: str = "orders-worker",
    version: int = 1,
    owner: str | None = "orders",
    label: str = "orders",
    **metadata: Any,  # noqa: ANN401 -- JSON
) -> dict[str, Any]:
    reference = {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "controller": True}
    owners = [reference | {"name": owner, "uid": f"uid of {owner}"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "c",
            "resourceVersion": str(version),
            "labels": {names.QUEUE_LABEL: label},
            "ownerReferences": owners if owner else [],
            **metadata,
        },
        "spec": {"replicas": 2},
    }


@pytest.fixture
def children(enqueued: Enqueued) -> Children:
    queues = Queues(enqueued)
    queues.seen(queue("orders"))
    queues.seen(queue("bills"))
    enqueued.taken()
    return Children(queues)


REFERENCE, WORKER = ("Deployment", "orders-worker"), ("shop", "orders-worker")


def version_of(inventory: Inventory) -> str:
    text: str = inventory.children.of(ORDERS)[REFERENCE].body["metadata"]["resourceVersion"]
    return text


def test_an_older_version_replaces_nothing_and_a_child_that_changes_hands_is_not_left_with_the_first(
    enqueued: Enqueued,
) -> None:
    """The answer to our write may come after the watch has reported a later write of another client."""
    inventory = Inventory(enqueued)
    for name in ("orders", "bills"):
        inventory.seen(names.DELAY_QUEUE, queue(name))
    inventory.seen(names.DEPLOYMENT, child(version=10))
    enqueued.taken()
    for version in (9, 10):
        inventory.seen(names.DEPLOYMENT, child(version=version))
    assert (version_of(inventory), enqueued.taken()) == ("10", {})
    inventory.seen(names.DEPLOYMENT, child(version=11, owner="bills"))
    assert inventory.children.of(ORDERS) == {}
    assert list(inventory.children.of(BILLS)) == [REFERENCE]
    assert enqueued.taken() == {ORDERS: 1, BILLS: 1}


@pytest.mark.parametrize(
    "owner",
    [{"kind": "CronJob", "name": "orders-reaper"}, {"apiVersion": "example.com/v1", "kind": "DelayQueue"}],
)
def test_what_another_kind_controls_is_no_child(
    children: Children, enqueued: Enqueued, owner: dict[str, str]
) -> None:
    """Such as the Jobs of the reaper's CronJob, which carry our labels."""
    owners = [{"name": "orders", "uid": "x", "controller": True, **owner}]
    children.seen(names.JOB, child("orders-reaper-28123", ownerReferences=owners))
    assert (children.of(ORDERS), enqueued.taken()) == ({}, {})


def test_a_child_that_goes_before_the_answer_to_our_write_arrives_stays_gone(enqueued: Enqueued) -> None:
    """The watch may be quicker than the answer; afterwards no other event would say that it is gone."""
    inventory = Inventory(enqueued)
    inventory.seen(names.DELAY_QUEUE, queue())
    inventory.take(names.DEPLOYMENT, {"type": "MODIFIED", "object": child(version=5)})
    enqueued.taken()
    inventory.take(names.DEPLOYMENT, {"type": "DELETED", "object": child(version=6)})
    inventory.seen(names.DEPLOYMENT, child(version=5))
    assert inventory.children.of(ORDERS) == {}
    assert enqueued.taken() == {ORDERS: 1}  # to look again
    inventory.seen(names.DEPLOYMENT, child(version=9, uid="another"))  # another client created it again
    assert version_of(inventory) == "9"


@pytest.mark.parametrize(("there", "left"), [("c", []), ("another", [("Deployment", "orders-worker")])])
def test_a_child_that_we_deleted_is_gone_at_once_but_not_another_of_its_name(
    enqueued: Enqueued, there: str, left: list[tuple[str, str]]
) -> None:
    """Its watch event may come before the answer to our request, and it has no other."""
    inventory = Inventory(enqueued)
    inventory.seen(names.DEPLOYMENT, child(version=4))
    deleted = inventory.children.of(ORDERS)[REFERENCE]
    inventory.seen(names.DEPLOYMENT, child(version=5, uid=there))
    inventory.ended(names.DEPLOYMENT, WORKER, deleted.uid)
    assert list(inventory.children.of(ORDERS)) == left


def test_the_body_of_a_foreign_object_with_our_labels_is_not_kept(children: Children) -> None:
    """Any client that can write ConfigMaps can write any number of them."""
    data = {"a": "x" * 1_000_000}
    whose = [(owner, label) for owner in ("orders", "unknown", None) for label in ("orders", "unknown")]
    for number, (owner, label) in enumerate(whose):
        children.seen(names.CONFIG_MAP, child(f"theirs-{number}", number + 1, owner, label) | {"data": data})
    assert len(pickle.dumps(children._of)) < 20_000


def test_a_child_that_others_made_too_large_is_put_right_without_its_body(children: Children) -> None:
    labels = {names.QUEUE_LABEL: "orders", "a": "x" * 1_000_000}
    children.seen(names.DEPLOYMENT, child(labels=labels))
    found = children.of(ORDERS)[REFERENCE]
    assert (found.body["spec"]["replicas"], found.owner_uid) == (2, "uid of orders")
    assert len(found.text) < 1000
    assert differs(child(), found.body)
    assert workload({**found.body, "metadata": {"generation": 1}}).wanted == 2


def test_of_a_child_that_its_namespace_has_no_room_for_the_body_is_not_kept(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may edit a namespace can add to the children of all its DelayQueues."""
    monkeypatch.setattr("delayq_operator.cache.children.NAMESPACE_BYTES", 150_000)
    large = {"data": {"a": "x" * 100_000}}
    bills = child("bills-worker", 2, "bills", "bills") | large

    def whole(key: Key) -> bool:
        (found,) = children.of(key).values()
        return "data" in found.body

    children.seen(names.DEPLOYMENT, child() | large)
    children.seen(names.DEPLOYMENT, bills)
    assert (whole(ORDERS), whole(BILLS)) == (True, False)
    children.seen(names.DEPLOYMENT, child(version=3))
    children.seen(names.DEPLOYMENT, bills)
    assert whole(BILLS)
    children.gone(names.DEPLOYMENT, ("shop", "bills-worker"))
    children.seen(names.DEPLOYMENT, child(version=4) | large)
    assert whole(ORDERS)


def test_every_child_that_is_made_has_a_name_that_is_known() -> None:
    for of in (parsed(), parsed(RICH), parsed(HOSTILE)):
        found = facts(of)
        made = [*desired(of, SETTING, found), erase_job(of, SETTING, found)]
        assert {(each["kind"], each["metadata"]["name"]) for each in made} <= names.children(of.metadata.name)


# --- Pods.


def pod(label: str | None = "orders", phase: str = "Running") -> dict[str, Any]:
    labels = {names.COMPONENT_LABEL: "worker"} | ({names.QUEUE_LABEL: label} if label else {})
    return {
        "metadata": {
            "name": "orders-worker-1",
            "namespace": "shop",
            "uid": "p",
            "resourceVersion": "1",
            "labels": labels,
        },
        "status": {"phase": phase},
    }


@pytest.mark.parametrize("last", [{"phase": "Succeeded"}, {"label": None}])
def test_a_pod_that_is_done_or_lost_its_label_is_as_good_as_gone(
    enqueued: Enqueued, last: dict[str, Any]
) -> None:
    queues = Queues(enqueued)
    queues.seen(queue("orders"))
    enqueued.taken()
    pods = Pods(queues)
    pods.seen(names.POD, pod())
    pods.seen(names.POD, pod(**last))
    assert pods.of(ORDERS) == []
    assert enqueued.taken() == {ORDERS: 2}


def stored(name: str, version: int = 1, *, deletion: str = "", **spec: object) -> dict[str, Any]:
    made = queue(name, version, uid=name, **({"deletionTimestamp": deletion} if deletion else {}))
    made["spec"] |= spec
    return made


def test_delayqueues_that_share_tasks_are_named_in_their_own_namespace_only() -> None:
    """A UID that no DelayQueue has may be of another cluster; that of a deleted one counts no more."""
    inventory = Inventory(lambda _: None)
    for namespace, name in (("shop", "a"), ("shop", "b"), ("bank", "c")):
        body = stored(name)
        body["metadata"]["namespace"] = namespace
        inventory.seen(names.DELAY_QUEUE, body)
    assert inventory.named(["b", "a"], "shop") == ("shop/a", "shop/b")
    elsewhere = "a DelayQueue of another namespace or cluster"
    assert inventory.named(["b", "c", "x"], "shop") == ("shop/b", elsewhere)
    inventory.ended(names.DELAY_QUEUE, ("shop", "b"), "b")
    assert inventory.named(["b"], "shop") == ()


def test_of_a_delayqueue_that_is_too_large_only_what_it_takes_to_delete_it_is_kept() -> None:
    """The API server takes a megabyte and more, and the operator has all of them in memory."""
    queues = Queues(lambda _: None)
    large = stored("orders", deletionPolicy="Delete", worker={"template": {"a": "x" * 400_000}})
    large["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 400_000}
    large["metadata"]["finalizers"] = [names.ERASE_FINALIZER, f"example.com/{'x' * 5_000}"]
    queues.seen(large)
    kept = queues.get(ORDERS)
    assert kept is not None
    assert len(json.dumps(kept.body)) < 1000
    assert kept.erases
    assert kept.finalizers == [names.ERASE_FINALIZER]
    with pytest.raises(SpecError, match=r"spec: expected at most 393,216 bytes, got 4\d\d,\d\d\d"):
        assert kept.document
    large["metadata"]["resourceVersion"] = "2"
    del large["spec"]["worker"]
    queues.seen(large)
    small = queues.get(ORDERS)
    assert small is not None
    assert small.document["spec"] == large["spec"]


def test_a_namespace_has_room_for_some_delayqueues_and_others_are_refused_until_these_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its authors do not fill the operator's memory; a list brings what was refused again, in the same version."""
    monkeypatch.setattr("delayq_operator.cache.queues.NAMESPACE_BYTES", 4 << 20)
    marked: list[Key] = []
    inventory = Inventory(marked.append)
    queues = inventory.queues
    large = {"template": {"a": "x" * 380_000}}
    everything = [stored(f"q{number}", worker=large) for number in range(20)]
    for one in everything:
        inventory.seen(names.DELAY_QUEUE, one)
    queues.seen(stored("orders") | {"metadata": {**stored("orders")["metadata"], "namespace": "bank"}})
    held = [found for one in everything if (found := queues.get(Key("shop", one["metadata"]["name"])))]
    assert sum(len(json.dumps(each.body)) for each in held) < 4 << 20
    with pytest.raises(
        SpecError, match=r"spec: the DelayQueues of a namespace take 4 MiB .* shop has too many"
    ):
        assert held[-1].document
    elsewhere = queues.get(Key("bank", "orders"))
    assert elsewhere is not None
    assert elsewhere.document
    for one in everything[:5]:
        inventory.take(names.DELAY_QUEUE, {"type": "DELETED", "object": one})
    marked.clear()
    for one in everything[-3:]:
        inventory.seen(names.DELAY_QUEUE, one)
    last = queues.get(held[-1].key)
    assert last is not None
    assert last.document
    assert marked == [each.key for each in held[-3:]]

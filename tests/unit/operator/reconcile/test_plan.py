"""What has to be done about the children: only what differs, never what belongs to somebody else."""

from __future__ import annotations

from typing import Any

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.children import Child, _child
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.plan import plan

from tests.unit.operator.queues import UID

EARLIER = "5f8c1d2e-0000-4000-8000-00000000000e"


def config(name: str = "orders-config", *, text: str = "a") -> dict[str, Any]:
    return stamped(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"},
            "data": {"queue.yaml": text},
        }
    )


def live(
    body: dict[str, Any],
    owner: str | None = UID,
    kind: names.Kind = names.CONFIG_MAP,
    *,
    applied: bool = True,
) -> Child:
    metadata = body["metadata"] | {"uid": "u", "resourceVersion": "7"}
    if applied:
        metadata["managedFields"] = [{"manager": names.OPERATOR, "operation": "Apply", "fieldsV1": {}}]
    if owner is not None:
        reference = {
            "apiVersion": names.API_VERSION,
            "kind": "DelayQueue",
            "name": "orders",
            "uid": owner,
            "controller": True,
        }
        metadata["ownerReferences"] = [reference]
    return _child(kind, body | {"metadata": metadata}, Key("shop", "orders"))


def there(*children: Child) -> dict[tuple[str, str], Child]:
    return {child.reference: child for child in children}


def test_nothing_is_to_be_done_where_everything_is_as_wanted() -> None:
    todo = plan([config()], there(live(config())), UID)
    assert (todo.changes, todo.prune, todo.leaving, todo.foreign) == ((), (), (), ())


def test_what_is_missing_is_made() -> None:
    (change,) = plan([config()], {}, UID).changes
    assert (change.kind, change.name, change.live, change.why) == (
        names.CONFIG_MAP,
        "orders-config",
        None,
        "",
    )


def test_what_differs_is_changed_and_says_where() -> None:
    edited = config()
    edited["data"] = {"queue.yaml": "edited by hand"}
    (change,) = plan([config()], there(live(edited)), UID).changes
    assert change.why == "data[queue.yaml]"


def test_what_is_not_wanted_any_more_is_pruned() -> None:
    old = live(config("orders-old"))
    todo = plan([config()], there(live(config()), old), UID)
    assert todo.prune == (old,)
    assert not todo.changes


def test_what_has_our_labels_but_is_not_ours_is_left_alone() -> None:
    """An object without an owner, or of another DelayQueue, may be anybody's."""
    todo = plan([], there(live(config("a"), owner=None), live(config("b"), owner=EARLIER)), UID)
    assert todo.prune == ()


def test_a_child_that_lost_its_owner_reference_is_taken_back() -> None:
    bare = config()
    wanted = stamped({**bare, "metadata": {**bare["metadata"], "ownerReferences": [{"uid": UID}]}})
    stripped = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": []}}
    (change,) = plan([wanted], there(live(stripped, owner=None)), UID).changes
    assert change.why == f"metadata.ownerReferences[{UID}]"


def test_labels_alone_make_nothing_ours() -> None:
    """Somebody else's object with our labels is looked at before it is applied, and then left alone."""
    (change,) = plan([config()], there(live(config(text="theirs"), owner=None, applied=False)), UID).changes
    assert change.live is None


def test_a_child_of_an_earlier_delayqueue_of_this_name_has_to_go_first() -> None:
    """Whoever deletes and creates again must not have the new children garbage-collected with the old ones."""
    theirs = live(config(), owner=EARLIER)
    todo = plan([config()], there(theirs), UID)
    assert todo.leaving == (theirs,)
    assert (todo.changes, todo.prune) == ((), ())


def test_containers_that_somebody_added_are_named() -> None:
    def deployment(*containers: str) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "orders-worker", "namespace": "shop"},
            "spec": {"template": {"spec": {"containers": [{"name": name} for name in containers]}}},
        }

    theirs = stamped(deployment("worker")) | {"spec": deployment("worker", "proxy")["spec"]}
    found = live(theirs, kind=names.DEPLOYMENT)
    todo = plan([stamped(deployment("worker"))], {("Deployment", "orders-worker"): found}, UID)
    assert todo.foreign == ("container proxy of Deployment orders-worker",)
    assert todo.changes == ()

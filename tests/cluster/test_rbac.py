"""The chart gives the operator the rights that it uses, and no others: its Role against the audit log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from delayq_operator.base import names

from tests.cluster.harness.resources import delayqueues, install_crd, make_namespace
from tests.cluster.harness.rest import Refused, Rest
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, install_rights, queue
from tests.cluster.world import ACCOUNT, KINDS, World, running
from tests.offline.chart import rendered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.kube.objects import Kind

    from tests.cluster.harness.audit import AuditEvent
    from tests.cluster.harness.control_plane import ControlPlane

pytestmark = pytest.mark.xdist_group("bare")

CREATED: Final = 201

SHOP: Final = {"namespace": "web", "name": "shop"}

Right = tuple[str, str, str]
"""API group, resource, verb."""

FINALIZERS: Final = ("delayq.dev", "delayqueues/finalizers", "update")
"""Asked for by an admission plugin while it looks at another request; it has a test of its own."""
TAKE: Final = ("coordination.k8s.io", "leases", "delete")
"""Asked for by the same plugin when the Lease changes hands between pods; it has a test of its own, too."""
BIND: Final = {
    "ClusterRole": ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    "Role": ("delayq.dev", "delayschedules", "get"),
}
"""Asked for by the API server when the operator binds the scanners' role: the right to bind it, or what it allows."""


@pytest.fixture
def rooms(plane: ControlPlane) -> Iterator[str]:
    """Names of new namespaces."""
    install_crd(plane)

    def more() -> Iterator[str]:
        while True:
            name = f"rbac-{uuid4().hex[:8]}"
            make_namespace(plane, name)
            yield name

    return more()


def allowed(values: dict[str, Any], kind: str) -> set[Right]:
    """What the chart's roles of the operator allow."""
    return {
        (group, resource, verb)
        for role in rendered(values)
        if role["kind"] in {kind, "Role"} and role["metadata"]["name"].startswith(ACCOUNT)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: list[AuditEvent]) -> set[Right]:
    """What was asked for; an apply that made an object took the right to create it, too."""
    rights = set()
    for event in events:
        if event.resource:  # otherwise discovery, which all users may
            resource = "/".join(filter(None, (event.resource, event.subresource)))
            rights.add((event.group, resource, event.verb))
            if event.verb == "patch" and event.code == CREATED:
                rights.add((event.group, resource, "create"))
    return rights


def live(world: World) -> None:
    """Everything that can happen to a DelayQueue, so that the operator does everything it ever does."""
    begin(world)
    # A child is deleted, another is edited.
    world.delete("deployments", "orders-worker")
    world.patch("cronjobs", "orders-reaper", {"spec": {"concurrencyPolicy": "Allow"}})
    eventually(lambda: world.there("deployments", "orders-worker"))
    eventually(lambda: world.get("cronjobs", "orders-reaper")["spec"]["concurrencyPolicy"] == "Forbid")
    # Of every kind a child that is not wanted, as an older operator may have left it.
    owner = world.queue()
    for plural, kind in KINDS.items():
        world.make(plural, unwanted(kind, owner))
    eventually(lambda: not any(world.there(plural, "stray") for plural in KINDS), what="strays are pruned")
    # Another number of workers, which the scaler writes; before there are fewer, the costs of those there are.
    for number in (3, 2):
        world.edit(worker={"replicas": number})
        world.settle()
        world.pretend_ready("worker")
    # Its erase Job cannot end here, for nothing runs pods.
    world.delete(names.PLURAL, "orders")
    eventually(lambda: world.there("jobs", "orders-erase"))
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": None}})
    eventually(lambda: not world.there(names.PLURAL, "orders"))


def begin(world: World) -> None:
    """With every kind of child, of which pods read a Secret and a ConfigMap."""
    spec = {"queueRef": {"name": "orders"}, "everySeconds": 3600}
    kind = {"apiVersion": names.API_VERSION, "kind": names.DELAY_SCHEDULE.kind}
    world.make(names.DELAY_SCHEDULE.plural, {**kind, "metadata": {"name": "hourly"}, "spec": spec})
    schedule = partial(world.get, names.DELAY_SCHEDULE.plural, "hourly")
    eventually(lambda: "QueueNotFound" in str(schedule().get("status")), what="its status")
    world.make("secrets", {"metadata": {"name": "shop"}, "stringData": {"password": "x"}})
    world.make("configmaps", {"metadata": {"name": "shop"}})
    container = {"name": "worker", "envFrom": [{"configMapRef": {"name": "shop"}}]}
    world.create(
        redis={"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "shop"}}},
        networkPolicy={"enabled": True},
        monitoring={"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
        worker={"replicas": 2, "template": {"spec": {"containers": [container]}}},
        deletionPolicy="Delete",
        schedules={},
        api={"allowPlainHttp": True, "access": [{"serviceAccount": SHOP, "verbs": ["schedule"]}]},
    )
    eventually(lambda: {plural for plural, _ in world.children()} == set(KINDS) - {"jobs"}, what="all kinds")
    eventually(lambda: world.there("configmaps", "orders-api"), what="the keys of the cluster")
    world.until("Accepted", "True")


POD: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "stray"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]},
}
ALWAYS: Final = {**POD, "spec": {"containers": POD["spec"]["containers"]}}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "services": {"ports": [{"port": 1}]},
    "networkpolicies": {"podSelector": {}},
    "poddisruptionbudgets": {"maxUnavailable": 1},
    "deployments": {"selector": {"matchLabels": {"app": "stray"}}, "template": ALWAYS},
    "cronjobs": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": POD}}},
    "jobs": {"template": POD, "suspend": True},
}


def unwanted(kind: Kind, owner: dict[str, Any], **more: bool) -> dict[str, Any]:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    reference = {"apiVersion": names.API_VERSION, "kind": names.DELAY_QUEUE.kind, "name": name, "uid": uid}
    references = [reference | {"controller": True} | more]
    metadata = {"name": "stray", "labels": names.labels(name, "config"), "ownerReferences": references}
    spec: dict[str, Any] = {"spec": SPECS[kind.plural]} if kind.plural in SPECS else {}
    if kind == names.ROLE_BINDING:
        spec["roleRef"] = {"apiGroup": kind.group, "kind": "Role", "name": "stray"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **spec}


def test_the_role_allows_what_the_operator_does_and_nothing_else(
    plane: ControlPlane, rooms: Iterator[str]
) -> None:
    """While it serves a DelayQueue from beginning to end, and is restarted once: one namespace, and all."""
    for everywhere in (False, True):
        room = next(rooms)
        mark = plane.audit_mark()
        kubeconfig = install_rights(plane, room, everywhere=everywhere)
        for more in (live, lambda _: None):
            with running(Operator.fork(kubeconfig, room, everywhere=everywhere)) as operator:
                more(World(plane, operator, room))
        events = plane.audit_events(mark, user=f"system:serviceaccount:{room}:{ACCOUNT}")
        values = {} if everywhere else {"watchNamespaces": [room]}
        kind = "ClusterRole" if everywhere else "Role"
        rights = allowed(values, kind)
        assert [event for event in events if event.code == 403] == []
        assert used(events) <= rights
        assert rights - used(events) == {FINALIZERS, TAKE, BIND[kind]}


_WRITES: Final = ("create", "update", "patch", "delete", "deletecollection")
NEVER: Final = {
    ("", "secrets"): ("get", "list", "watch", *_WRITES),
    **dict.fromkeys(
        [("rbac.authorization.k8s.io", kind) for kind in ("roles", "clusterroles")],
        (*_WRITES, "escalate", "bind"),
    ),
    ("authentication.k8s.io", "tokenreviews"): ("create",),
    ("authorization.k8s.io", "subjectaccessreviews"): ("create",),
}
"""What the operator's account may not do anywhere, its own namespace included."""


def test_the_account_may_read_no_secret_and_write_no_role_in_any_namespace(
    plane: ControlPlane, rooms: Iterator[str]
) -> None:
    """Whether it serves all namespaces or some; the review itself says yes where it should."""
    for everywhere in (False, True):
        room = next(rooms)
        install_rights(plane, room, everywhere=everywhere)
        user = f"system:serviceaccount:{room}:{ACCOUNT}"
        places = (room, next(rooms), "default", "kube-system", "")
        for (group, resource), verbs in NEVER.items():
            found = {
                (verb, place)
                for verb in verbs
                for place in places
                if can(plane, user, verb, group, resource, place)
            }
            assert found == set()
        eventually(lambda who=user, at=room: can(plane, who, "list", "apps", "deployments", at))  # type: ignore[misc]


def can(plane: ControlPlane, user: str, verb: str, *of: str) -> bool:
    """What `kubectl auth can-i` asks: of a group and a resource, in a namespace, or in all."""
    attributes = dict(zip(("group", "resource", "namespace"), of, strict=True), verb=verb)
    body = {"spec": {"user": user, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes}}
    return bool(
        plane.rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"]
    )


def test_children_that_block_their_owner_take_the_right_to_do_so(
    plane: ControlPlane, rooms: Iterator[str]
) -> None:
    """Without `update` on delayqueues/finalizers, a careful cluster refuses what the operator makes."""
    room = next(rooms)
    kubeconfig = install_rights(plane, room)
    owner = plane.rest.create(delayqueues(room), queue())
    child = unwanted(names.CONFIG_MAP, owner, blockOwnerDeletion=True)
    assert refused(kubeconfig, room, child) == ""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{room}/roles/{ACCOUNT}"
    rules = plane.rest.get(path)["rules"]
    rest = [rule for rule in rules if rule["resources"] != ["delayqueues/finalizers"]]
    plane.rest.patch(path, {"rules": rest})
    eventually(lambda: "blockOwnerDeletion" in refused(kubeconfig, room, child))


def refused(kubeconfig: Path, namespace: str, body: dict[str, Any]) -> str:
    """What the API server says against making it; nothing if it would."""
    rest = Rest(kubeconfig)
    try:
        rest.create(f"/api/v1/namespaces/{namespace}/configmaps", body, dryRun="All")
    except Refused as error:
        return str(error)
    finally:
        rest.close()
    return ""

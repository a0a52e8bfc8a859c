"""DelayQueues stored under an older CRD, which had fewer defaults and rules, live on under today's.

The older CRD is today's with a group of its own, so that no other test sees it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from delayq.contract import parse

from tests.cluster.harness.resources import found
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.unit.contract.crd import CRD
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster

BROKEN: dict[str, Any] = {"recovery": {"check": {"guard": {}}}}
"""Fields that no rule refused then."""


def without_rules_and_defaults(schema: Any) -> Any:  # noqa: ANN401  a schema is a tree of anything
    if isinstance(schema, list):
        return [without_rules_and_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: item for key, item in schema.items() if key not in {"x-kubernetes-validations", "default"}}
    return {key: without_rules_and_defaults(item) for key, item in kept.items()}


def test_older_objects_live_on_under_todays_crd(cluster: Cluster, namespace: str) -> None:
    """They have today's defaults, keep what cannot change, and one that today's rules refuse can be reported on."""
    group, rest = f"test-{uuid4().hex[:8]}.delayq.dev", cluster.rest
    path = f"/apis/{group}/v1alpha1/namespaces/{namespace}/delayqueues"
    orders, broken = f"{path}/orders", f"{path}/broken"
    todays = CRD | {"metadata": {"name": f"delayqueues.{group}"}, "spec": CRD["spec"] | {"group": group}}

    def apply(crd: dict[str, Any]) -> None:
        cluster.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(crd))
        eventually(lambda: found(cluster, path), what="the CRD is served")

    def store(name: str, *, dry_run: bool = False, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  of a spec
        named = {"apiVersion": f"{group}/v1alpha1", "metadata": {"name": name}}
        return rest.create(path, document(**fields) | named, **({"dryRun": "All"} if dry_run else {}))

    def refuses() -> bool:
        try:
            store("trial", dry_run=True, **BROKEN)
        except Refused as error:
            return error.code == 422
        return False

    apply(without_rules_and_defaults(todays))
    before = store("orders")
    assert before["spec"] == document()["spec"]
    store("broken", **BROKEN)
    apply(todays)
    eventually(refuses, what="today's rules are in force")

    read = rest.get(orders)
    assert read["spec"]["limits"]["maxLength"] == 10_000_000
    assert parse(read | {"apiVersion": "delayq.dev/v1alpha1"}).spec == parse(document()).spec
    read["spec"]["suspend"] = True
    changed = rest.replace(orders, read)
    assert changed["metadata"]["generation"] == before["metadata"]["generation"] + 1
    # No keyPrefix was stored: today's default counts as the object's own.
    with pytest.raises(Refused, match="keyPrefix cannot be changed"):
        rest.patch(orders, {"spec": {"redis": {"keyPrefix": "shop"}}})

    rest.patch(broken, {"metadata": {"finalizers": ["delayq.dev/erase"], "annotations": {"a": "b"}}})
    rest.patch(f"{broken}/status", {"status": {"replicas": 1}})
    with pytest.raises(Refused, match=r"recovery\.check\.guard needs"):
        rest.patch(broken, {"spec": {"suspend": True}})
    corrected = rest.patch(broken, {"spec": {"recovery": {"check": None}, "suspend": True}})
    assert corrected["status"] == {"replicas": 1}
    rest.patch(broken, {"metadata": {"finalizers": None}})
    rest.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/delayqueues.{group}")

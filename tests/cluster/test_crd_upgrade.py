"""DelayQueues stored under an older CRD, which had fewer defaults and rules, live on under today's.

The older CRD is today's with a group of its own, so that no other test sees it.
"""

from __future__ import annotations

import json
from copy import deepcopy
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
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.unit.contract.crd import Schema

BROKEN: dict[str, Any] = {"recovery": {"check": {"guard": {}}}}
"""Fields that no rule refused then."""


def without_rules_and_defaults(schema: Any) -> Any:  # noqa: ANN401  a schema is a tree of anything
    if isinstance(schema, list):
        return [without_rules_and_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: item for key, item in schema.items() if key not in {"x-kubernetes-validations", "default"}}
    return {key: without_rules_and_defaults(item) for key, item in kept.items()}


class Upgrade:
    """A CRD of a group of its own, and the DelayQueues stored under it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.group = f"test-{uuid4().hex[:8]}.delayq.dev"
        self.path = f"/apis/{self.group}/v1alpha1/namespaces/{namespace}/delayqueues"
        self.crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/delayqueues.{self.group}"

    def apply(self, crd: Schema) -> None:
        crd = deepcopy(crd)
        crd["metadata"]["name"] = f"delayqueues.{self.group}"
        crd["spec"]["group"] = self.group
        self.cluster.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(crd))
        eventually(lambda: found(self.cluster, self.path), what="the CRD is served")

    def apply_older(self) -> None:
        older = deepcopy(CRD)
        schema = older["spec"]["versions"][0]["schema"]
        schema["openAPIV3Schema"] = without_rules_and_defaults(schema["openAPIV3Schema"])
        self.apply(older)

    def apply_todays(self) -> None:
        """Apply it, and return when the API server reads with its defaults and refuses by its rules."""
        self.apply(CRD)
        eventually(self.refuses, what="today's rules are in force")

    def refuses(self) -> bool:
        try:
            self.cluster.rest.create(self.path, self.document("trial", **BROKEN), dryRun="All")
        except Refused as error:
            return error.code == 422
        return False

    def document(self, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a spec
        return document(**fields) | {"apiVersion": f"{self.group}/v1alpha1", "metadata": {"name": name}}

    def store(self, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a spec
        return self.cluster.rest.create(self.path, self.document(name, **fields))

    def get(self, name: str) -> dict[str, Any]:
        return self.cluster.rest.get(f"{self.path}/{name}")


@pytest.fixture
def upgrade(cluster: Cluster, namespace: str) -> Iterator[Upgrade]:
    upgrade = Upgrade(cluster, namespace)
    upgrade.apply_older()
    yield upgrade
    cluster.rest.delete(upgrade.crd)


def test_older_objects_live_on_under_todays_crd(upgrade: Upgrade) -> None:
    """They have today's defaults, keep what cannot change, and one that today's rules refuse can be reported on."""
    before = upgrade.store("orders")
    assert before["spec"] == document()["spec"]
    upgrade.store("broken", **BROKEN)
    upgrade.apply_todays()
    rest, orders, broken = upgrade.cluster.rest, f"{upgrade.path}/orders", f"{upgrade.path}/broken"

    read = upgrade.get("orders")
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

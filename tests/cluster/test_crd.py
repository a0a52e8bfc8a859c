"""The CRD on a real API server: what is stored, what is shown, and what may be written where."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import parse

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import APPLY, Refused
from tests.unit.contract.crd import CRD, SPEC
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.usefixtures("crd")

NOW = "2026-01-02T03:04:05Z"


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "AsAsked",
        "message": "All is well.",
        "lastTransitionTime": NOW,
    }


def apply_status(cluster: Cluster, namespace: str, manager: str, status: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in document().items() if key != "spec"} | {"status": status}
    path = f"{delayqueues(namespace)}/orders/status"
    return cluster.rest.patch(path, body, APPLY, fieldManager=manager, force="true")


def test_the_crd_is_established_without_a_complaint_and_explained(cluster: Cluster, crd: str) -> None:
    found = cluster.rest.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")
    conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}  # and no NonStructuralSchema
    applied = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--filename=-", input=json.dumps(CRD)
    )
    assert applied.stderr == ""  # no warning
    said = cluster.kubectl("explain", "delayqueue.spec").stdout
    for name, schema in SPEC["properties"].items():
        assert re.search(rf"^  {name}\t", said, re.MULTILINE), name
        assert schema["description"].split()[0] in said
    assert "standalone, sentinel, cluster" in cluster.kubectl("explain", "dq.spec.redis").stdout
    assert "ENUM:" in cluster.kubectl("explain", "dq.spec.suspendPolicy").stdout


# --- What is stored.


def test_the_least_document_is_stored_with_its_defaults(cluster: Cluster, namespace: str) -> None:
    """They mean to the model what their absence means, and what was read can be stored again without a change."""
    path = delayqueues(namespace)
    whole = cluster.rest.create(path, document())
    stored = whole["spec"]
    assert stored["redis"]["standalone"] == {"host": "redis", "port": 6379}
    assert stored["shards"] == 1
    # What a choice or a second writer decides has no default.
    assert not {"queueName", "autoscaling", "guard"} & set(stored)
    assert stored["worker"]["replicas"] == 1  # or the scale subresource could not be read
    assert not {"delaysSeconds", "exponential"} & set(stored["delivery"].get("backoff", {}))
    assert parse(whole).spec == parse(document()).spec
    again = cluster.rest.replace(f"{path}/orders", whole)
    assert again["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]
    with pytest.raises(Refused, match=r'unknown field "spec\.shard"'):
        cluster.rest.create(path, document(shard=2), fieldValidation="Strict")
    assert "shard" not in cluster.rest.patch(f"{path}/orders", {"spec": {"shard": 2}})["spec"]


# --- Subresources.


def test_the_status_is_written_through_its_subresource_only(cluster: Cluster, namespace: str) -> None:
    """And two managers own a condition each."""
    one = f"{delayqueues(namespace)}/orders"
    stored = cluster.rest.create(delayqueues(namespace), document() | {"status": {"replicas": 7}})
    assert "status" not in stored
    changed = cluster.rest.patch(f"{one}/status", {"status": {"replicas": 3}, "spec": {"suspend": True}})
    assert changed["status"] == {"replicas": 3}
    assert changed["spec"] == stored["spec"]
    assert changed["metadata"]["generation"] == stored["metadata"]["generation"]
    assert cluster.rest.patch(one, {"spec": {"suspend": True}})["metadata"]["generation"] == 2
    with pytest.raises(Refused, match=r"status.conditions\[0\].status: Unsupported value"):
        apply_status(cluster, namespace, "one", {"conditions": [condition("Ready", "true")]})
    apply_status(cluster, namespace, "one", {"conditions": [condition("Ready")]})
    apply_status(cluster, namespace, "two", {"conditions": [condition("Scaling")]})
    left = apply_status(cluster, namespace, "one", {})
    assert [item["type"] for item in left["status"]["conditions"]] == ["Scaling"]


# --- References.


def test_two_appliers_do_not_mix_the_parts_of_a_reference(cluster: Cluster, namespace: str) -> None:
    def apply(manager: str, **reference: str) -> Any:  # noqa: ANN401 -- a part of a document
        redis = {"standalone": {"host": "redis"}, "auth": {"passwordSecretRef": reference}}
        path = f"{delayqueues(namespace)}/orders"
        body = cluster.rest.patch(path, document(redis=redis), APPLY, fieldManager=manager, force="true")
        return body["spec"]["redis"]["auth"]["passwordSecretRef"]

    assert apply("one", name="old", key="secret") == {"name": "old", "key": "secret"}
    assert apply("two", name="new") == {"name": "new", "key": "password"}


def test_a_schedule_stays_with_its_queue(cluster: Cluster, namespace: str) -> None:
    schedules = delayqueues(namespace).replace("delayqueues", "delayschedules")
    spec = {"queueRef": {"name": "orders"}, "everySeconds": 60}
    body = document(spec) | {"kind": "DelaySchedule"}
    stored = cluster.rest.create(schedules, body)
    with pytest.raises(Refused, match=r"spec\.queueRef: .*queueRef cannot be changed"):
        cluster.rest.replace(f"{schedules}/orders", stored | {"spec": spec | {"queueRef": {"name": "shop"}}})
    cluster.rest.replace(f"{schedules}/orders", stored | {"spec": spec | {"everySeconds": 90}})

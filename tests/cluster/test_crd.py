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


def columns(*, wide: bool) -> list[str]:
    """The printer columns that kubectl shows always, or with --output=wide."""
    declared = CRD["spec"]["versions"][0]["additionalPrinterColumns"]
    return [column["name"].upper() for column in declared if wide or not column.get("priority")]


def apply_status(cluster: Cluster, namespace: str, manager: str, status: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in document().items() if key != "spec"} | {"status": status}
    path = f"{delayqueues(namespace)}/orders/status"
    return cluster.rest.patch(path, body, APPLY, fieldManager=manager, force="true")


# --- The CRD itself.


def test_the_crd_is_established_without_a_complaint(cluster: Cluster, crd: str) -> None:
    found = cluster.rest.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")
    conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}  # and no NonStructuralSchema
    applied = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--filename=-", input=json.dumps(CRD)
    )
    assert applied.stderr == ""  # no warning


def test_kubectl_knows_it_by_each_of_its_names(cluster: Cluster, namespace: str) -> None:
    cluster.rest.create(delayqueues(namespace), document())
    for name in ("dq", "delayqueue", "delayqueues", "delayq"):
        listed = cluster.kubectl("get", name, f"--namespace={namespace}", "--output=name").stdout
        assert listed == "delayqueue.delayq.dev/orders\n"


def test_kubectl_explains_each_field_of_the_spec(cluster: Cluster) -> None:
    said = cluster.kubectl("explain", "delayqueue.spec").stdout
    for name, schema in SPEC["properties"].items():
        assert re.search(rf"^  {name}\t", said, re.MULTILINE), name
        assert schema["description"].split()[0] in said
    assert "standalone, sentinel, cluster" in cluster.kubectl("explain", "dq.spec.redis").stdout
    assert "ENUM:" in cluster.kubectl("explain", "dq.spec.stopPolicy").stdout


# --- What is stored.


def test_the_least_document_is_stored_with_its_defaults(cluster: Cluster, namespace: str) -> None:
    """They mean to the model what their absence means, and what was read can be stored again without a change."""
    whole = cluster.rest.create(delayqueues(namespace), document())
    stored = whole["spec"]
    assert stored["redis"]["standalone"] == {"host": "redis", "port": 6379}
    assert stored["shards"] == 1
    # What a choice or a second writer decides has no default.
    assert not {"queueName", "autoscaling", "guard"} & set(stored)
    assert stored["worker"]["replicas"] == 1  # or the scale subresource could not be read
    assert not {"delaysSeconds", "exponential"} & set(stored["delivery"].get("backoff", {}))
    assert parse(whole).spec == parse(document()).spec
    again = cluster.rest.replace(f"{delayqueues(namespace)}/orders", whole)
    assert again["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]


def test_an_unknown_field_is_refused_when_asked_to_and_dropped_otherwise(
    cluster: Cluster, namespace: str
) -> None:
    path = delayqueues(namespace)
    with pytest.raises(Refused, match=r'unknown field "spec\.shard"'):
        cluster.rest.create(path, document(shard=2), fieldValidation="Strict")
    assert "shard" not in cluster.rest.create(path, document(shard=2))["spec"]


# --- Subresources.


def test_the_status_is_written_through_its_subresource_only(cluster: Cluster, namespace: str) -> None:
    one = f"{delayqueues(namespace)}/orders"
    stored = cluster.rest.create(delayqueues(namespace), document() | {"status": {"replicas": 7}})
    assert "status" not in stored
    changed = cluster.rest.patch(f"{one}/status", {"status": {"replicas": 3}, "spec": {"stopPolicy": "Hold"}})
    assert changed["status"] == {"replicas": 3}
    assert changed["spec"] == stored["spec"]
    assert changed["metadata"]["generation"] == stored["metadata"]["generation"]
    assert cluster.rest.patch(one, {"spec": {"stopPolicy": "Hold"}})["metadata"]["generation"] == 2


def test_two_managers_own_a_condition_each(cluster: Cluster, namespace: str) -> None:
    cluster.rest.create(delayqueues(namespace), document())
    with pytest.raises(Refused, match=r"status.conditions\[0\].status: Unsupported value"):
        apply_status(cluster, namespace, "one", {"conditions": [condition("Ready", "true")]})
    apply_status(cluster, namespace, "one", {"conditions": [condition("Ready")]})
    apply_status(cluster, namespace, "two", {"conditions": [condition("Scaling")]})
    left = apply_status(cluster, namespace, "one", {})
    assert [item["type"] for item in left["status"]["conditions"]] == ["Scaling"]


def test_kubectl_scales_the_workers(cluster: Cluster, namespace: str) -> None:
    cluster.rest.create(delayqueues(namespace), document())
    cluster.kubectl("scale", "dq/orders", "--replicas=3", f"--namespace={namespace}")
    assert cluster.rest.get(f"{delayqueues(namespace)}/orders")["spec"]["worker"]["replicas"] == 3
    apply_status(cluster, namespace, "operator", {"replicas": 2, "selector": "delayq.dev/queue=orders"})
    scale = cluster.rest.get(f"{delayqueues(namespace)}/orders/scale")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "delayq.dev/queue=orders"}


def test_the_scale_subresource_can_be_read_of_a_queue_that_says_no_number(
    cluster: Cluster, namespace: str
) -> None:
    for name, autoscaling in (("fixed", None), ("internal", {}), ("external", {"mode": "External"})):
        body = document(autoscaling=autoscaling)
        cluster.rest.create(delayqueues(namespace), body | {"metadata": {"name": name}})
        assert cluster.rest.get(f"{delayqueues(namespace)}/{name}/scale")["spec"] == {"replicas": 1}


# --- What kubectl shows.


def test_kubectl_get_shows_the_queue_at_a_glance(cluster: Cluster, namespace: str) -> None:
    cluster.rest.create(delayqueues(namespace), document())
    backlog = {"due": 4, "scheduled": 1200, "inFlight": 2, "dead": 1, "nextDueTime": NOW}
    status = {
        "readyReplicas": 2,
        "desiredReplicas": 3,
        "backlog": backlog,
        "conditions": [condition("Ready")],
    }
    apply_status(cluster, namespace, "operator", status)
    header, row = cluster.kubectl("get", "dq", f"--namespace={namespace}").stdout.splitlines()
    assert header.split() == ["NAME", *columns(wide=False)]
    *shown, age = row.split()
    assert shown == ["orders", "True", "4", "1200", "2", "1", "2", "3", NOW]
    assert re.fullmatch(r"\d+s", age)
    header, row = cluster.kubectl(
        "get", "dq", "--output=wide", f"--namespace={namespace}"
    ).stdout.splitlines()
    assert header.split() == ["NAME", *columns(wide=True)]
    assert " AsAsked " in row

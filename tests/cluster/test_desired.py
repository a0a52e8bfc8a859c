"""A real API server takes every child as it is, adds nothing that drift.py calls a difference, and makes pods."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from delayq.contract import SpecError, parse
from delayq_operator.base import names
from delayq_operator.desired import desired, erase_job
from delayq_operator.reconcile.drift import differences, foreign, stamped
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.cluster.harness.resources import delayqueues, delete_namespace, make_namespace
from tests.cluster.harness.rest import APPLY
from tests.cluster.harness.waiting import eventually
from tests.unit.contract import documents
from tests.unit.operator.queues import DOCUMENTS, SETTING, UID, Document, facts, queue
from tests.unit.operator.templates import templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract import DelayQueue

    from tests.cluster.harness.cluster import Cluster

Object = dict[str, Any]
KINDS = {kind.kind: kind for kind in (*names.CHILDREN, *names.OPTIONAL)}


def path(body: Object) -> str:
    kind, metadata = KINDS[body["kind"]], body["metadata"]
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{metadata['namespace']}/{kind.plural}/{metadata['name']}"


def apply(cluster: Cluster, body: Object, **query: str) -> Object:
    return cluster.rest.patch(
        path(body), body, APPLY, fieldManager=names.OPERATOR, force="true", fieldValidation="Strict", **query
    )


def owner(cluster: Cluster, of: DelayQueue, namespace: str) -> str:
    """Make a DelayQueue of that name for the children to belong to: without one they are garbage. Its uid."""
    metadata = {"name": of.metadata.name, "annotations": {names.SUSPEND_RECONCILIATION: "true"}}
    body = {**documents.document(), "metadata": metadata}
    made = cluster.rest.create(delayqueues(namespace), body)
    return str(made["metadata"]["uid"])


def children(of: DelayQueue, namespace: str, uid: str = UID) -> list[Object]:
    """All of them, the Job that erases the queue too, for a queue of this namespace."""
    here = replace(of, metadata=replace(of.metadata, namespace=namespace))
    known = facts(here, uid=uid)
    return [stamped(each) for each in (*desired(here, SETTING, known), erase_job(here, SETTING, known))]


@pytest.fixture
def restricted(cluster: Cluster) -> Iterator[str]:
    """A namespace that takes only pods that satisfy the Pod Security Standard `restricted`."""
    name = f"test-{uuid4().hex[:8]}"
    make_namespace(cluster, name, {"pod-security.kubernetes.io/enforce": "restricted"})
    yield name
    delete_namespace(cluster, name)


@pytest.mark.usefixtures("crd", "monitors")
def test_what_was_applied_does_not_differ_is_not_written_again_and_makes_restricted_pods(
    cluster: Cluster, restricted: str
) -> None:
    for number, document in enumerate(DOCUMENTS.values()):
        of = queue(document, scanner={"replicas": 1})
        of = replace(of, metadata=replace(of.metadata, name=f"{of.metadata.name[:40]}-{number}"))
        bodies = children(of, restricted, owner(cluster, of, restricted))
        for body in bodies:
            live = apply(cluster, body)
            assert not [*differences(body, live)], body["kind"]
            assert foreign(body, live) == []
            # Controllers write statuses meanwhile, so a moment of quiet has to be waited for.
            eventually(partial(unwritten, cluster, body), what=f"{body['kind']} is left as it is")
        (cron_job,) = [body for body in bodies if body["kind"] == "CronJob"]
        once = {"metadata": {"name": f"once-{number}"}, "spec": cron_job["spec"]["jobTemplate"]["spec"]}
        cluster.rest.create(f"/apis/batch/v1/namespaces/{restricted}/jobs", once)
        eventually(
            partial(each_component, cluster, restricted, of.metadata.name), what="a pod of each component"
        )


def unwritten(cluster: Cluster, body: Object) -> bool:
    before = cluster.rest.get(path(body))["metadata"]["resourceVersion"]
    return bool(apply(cluster, body)["metadata"]["resourceVersion"] == before)


def each_component(cluster: Cluster, namespace: str, name: str) -> bool:
    selector = f"{names.QUEUE_LABEL}={name}"
    pods = cluster.rest.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
    found = {pod["metadata"]["labels"][names.COMPONENT_LABEL] for pod in pods}
    return found == {"scanner", "worker", "reaper", "erase"}


def specs() -> st.SearchStrategy[Document]:
    """Specs whose every part means something to Kubernetes; it checks schedules more strictly."""
    return st.builds(
        _meaningful, documents.specs, st.tuples(*map(templates, ("scanner", "worker", "reaper")))
    )


def _meaningful(spec: Document, given: tuple[Document, ...]) -> Document:
    spec = deepcopy(spec)
    for component, template in zip(("scanner", "worker", "reaper"), given, strict=True):
        spec.setdefault(component, {})["template"] = template
    spec["reaper"]["schedule"] = "@hourly"
    spec.get("networkPolicy", {}).pop("metricsFrom", None)
    return spec


@pytest.mark.usefixtures("crd", "monitors")
@settings(max_examples=15)
@given(spec=specs())
def test_the_children_of_any_document_are_accepted_and_do_not_differ(
    cluster: Cluster, namespace: str, spec: Document
) -> None:
    try:
        bodies = children(parse(documents.document(spec)), namespace)
    except SpecError:
        reject()
    for body in bodies:
        live = apply(cluster, body, dryRun="All")
        assert not [*differences(body, live)], body["kind"]
        assert foreign(body, live) == []


@pytest.mark.usefixtures("crd")
@settings(max_examples=12)
@given(data=st.data())
def test_what_a_template_said_before_leaves_nothing_behind(
    cluster: Cluster, namespace: str, data: st.DataObject
) -> None:
    """Not even where one kind of volume, probe or variable took the place of another."""
    given_templates = data.draw(st.lists(templates("scanner"), min_size=2, max_size=3))
    bodies = [_scanner(template, namespace) for template in given_templates]
    lived = [apply(cluster, body) for body in bodies][-1]
    cluster.rest.delete(path(bodies[-1]))
    assert not [*differences(bodies[-1], lived)]
    assert lived["spec"] == apply(cluster, bodies[-1], dryRun="All")["spec"]


def _scanner(template: Object, namespace: str) -> Object:
    """A scanner Deployment without an owner, which the garbage collector leaves alone."""
    bodies = children(queue(scanner={"template": template, "replicas": 0}), namespace)
    body = next(each for each in bodies if each["metadata"]["name"] == names.scanner("orders"))
    return {**body, "metadata": {**body["metadata"], "ownerReferences": []}}

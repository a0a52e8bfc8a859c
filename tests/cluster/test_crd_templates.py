"""Pod templates on a real API server: no field of a Pod is lost, and a typo is refused with its path."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError, parse
from delayq.contract.kubernetes import PLAIN, fields, item_of

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import Refused
from tests.unit.contract.crd import CRD, CRDS
from tests.unit.contract.documents import document
from tools.crds import kubernetes_types

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.usefixtures("crd")

Schema = dict[str, Any]

PROCESSES = ("scanner", "worker", "reaper")
SAMPLES = {"text": "a", "int": 1, "bool": True, "port": "http", "amount": "1.5Gi"}


def whole(kind: str) -> object:
    """A value with every field of a type."""
    if kind in PLAIN:
        return SAMPLES[kind]
    if kind.startswith("["):
        return [whole(item_of(kind))]
    if kind.startswith("{"):
        return {"a": whole(item_of(kind))}
    return {field: whole(of) for field, of in fields(kind).items()}


def test_the_table_is_that_of_this_kubernetes(cluster: Cluster) -> None:
    assert kubernetes_types.FILE.read_text() == kubernetes_types.text(cluster.rest), (
        "run: python -m tools.crds.kubernetes_types; make crds"
    )


def test_a_template_with_every_field_of_a_pod_is_stored_as_it_is(cluster: Cluster, namespace: str) -> None:
    template = whole("PodTemplateSpec")
    body = document(
        networkPolicy={"metricsFrom": [whole("NetworkPolicyPeer")]},
        **{process: {"template": template} for process in PROCESSES},
    )
    cluster.rest.create(delayqueues(namespace), body, fieldValidation="Strict")
    stored = cluster.rest.get(f"{delayqueues(namespace)}/orders")
    assert stored["spec"]["networkPolicy"]["metricsFrom"] == body["spec"]["networkPolicy"]["metricsFrom"]
    read = parse(stored).spec
    for process in PROCESSES:
        assert stored["spec"][process]["template"] == template
        assert getattr(read, process).template == template


def test_what_deletes_is_stored_as_it_is(cluster: Cluster, namespace: str) -> None:
    resources = {"limits": {"$patch": "delete"}, "requests": {"cpu": None, "memory": 1}}
    container = {"name": "worker", "resources": resources, "startupProbe": None}
    spec = {"affinity": {"$patch": "delete"}, "securityContext": None, "containers": [container]}
    template = {"spec": spec}
    body = document(worker={"template": template})
    stored = cluster.rest.create(delayqueues(namespace), body, fieldValidation="Strict")
    assert stored["spec"]["worker"]["template"] == template
    assert parse(stored).spec.worker.template == template
    applied = json.dumps(body | {"metadata": {"name": "applied"}})
    cluster.kubectl("apply", "--server-side", f"--namespace={namespace}", "--filename=-", input=applied)
    again = cluster.rest.get(f"{delayqueues(namespace)}/applied")
    assert again["spec"]["worker"]["template"] == template


def test_plain_kubectl_apply_takes_the_files_and_remembers_them(cluster: Cluster) -> None:
    """It keeps the whole of each in an annotation."""
    said = cluster.kubectl("apply", "--dry-run=server", "--output=json", f"--filename={CRDS}").stdout
    kept = json.loads(said)["items"][0]["metadata"]["annotations"]
    applied = json.loads(kept["kubectl.kubernetes.io/last-applied-configuration"])
    assert applied["spec"]["versions"][0]["schema"] == CRD["spec"]["versions"][0]["schema"]


TYPOS: Schema = {
    "specs": {},
    "metadata": {"label": {}},
    "spec": {
        "tolerations": [{"efect": "NoExecute"}],
        "affinity": {"podAntiAfinity": {}},
        "containers": [{"name": "worker", "env": [{"name": "A", "valuefrom": {}}]}],
    },
}
PATHS = (
    *("specs", "metadata.label", "spec.tolerations[0].efect", "spec.affinity.podAntiAfinity"),
    "spec.containers[0].env[0].valuefrom",
)


def test_kubectl_apply_and_the_model_refuse_a_typo_and_name_its_path(
    cluster: Cluster, namespace: str
) -> None:
    body = document(**{process: {"template": TYPOS} for process in PROCESSES})
    expected = {f"spec.{process}.template.{path}" for path in PATHS for process in PROCESSES}
    apply = ("apply", f"--namespace={namespace}", "--filename=-")
    done = cluster.kubectl(*apply, input=json.dumps(body), check=False)
    assert set(re.findall(r'unknown field "([^"]*)"', done.stderr)) == expected
    with pytest.raises(SpecError) as raised:
        parse(body)
    assert {problem.path for problem in raised.value.problems} == expected
    done = cluster.kubectl(*apply, "--server-side", input=json.dumps(body), check=False)
    assert done.returncode
    assert ".template." in done.stderr
    limits = {"cpu": "banana", "memory": "1.5Gi"}
    container = {
        "env": [{"name": "A", "value": 1}],
        "args": "a",
        "ports": [{"name": "a"}],
        "resources": {"limits": limits},
    }
    template = {"spec": {"containers": [{"name": "worker", **container}]}}
    with pytest.raises(Refused) as refused:
        cluster.rest.create(delayqueues(namespace), document(worker={"template": template}))
    for path in ("env[0].value", "args", "ports[0].containerPort", "resources.limits.cpu"):
        assert f"spec.worker.template.spec.containers[0].{path}: " in str(refused.value)
    assert "memory" not in str(refused.value)
    assert cluster.rest.items(delayqueues(namespace)) == []

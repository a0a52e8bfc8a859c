"""Pod templates on a real API server: no field of a Pod is lost, and a typo is refused with its path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError, parse
from delayq.contract.pod_template import FIELDS

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import Refused
from tests.unit.contract.crd import CRD
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.usefixtures("crd")

Schema = dict[str, Any]

PROCESSES = ("scanner", "worker", "reaper")
PLAIN = {"text": "string", "int": "integer", "bool": "boolean"}
ODD = {"IntOrString": "port", "Quantity": "amount"}
SAMPLES: dict[str, object] = {"string": "a", "integer": 1, "boolean": True, "port": "http", "amount": "1.5Gi"}


class Pods:
    """What the API server says of Pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.definitions: Schema = cluster.rest.get("/openapi/v2")["definitions"]
        self.spec = self.definitions["io.k8s.api.core.v1.PodSpec"]

    def kind(self, schema: Schema) -> tuple[str, Schema]:
        """The schema behind a reference, and the name of its type."""
        name = schema.get("$ref", "").rpartition("/")[2]
        found = self.definitions[name] if name else schema
        return ODD.get(
            name.rpartition(".")[2], found["type"] if "properties" not in found else "fields"
        ), found

    def differences(self, ours: str, theirs: Schema, path: str) -> Iterator[str]:
        """What a type of the table has otherwise than Kubernetes."""
        kind, found = self.kind(theirs)
        inner = ours.strip("[]{}")
        if ours == "open":
            return
        if ours in PLAIN or ours in ODD.values():
            if PLAIN.get(ours, ours) != kind:
                yield f"{path}: {ours}, but {kind}"
        elif ours.startswith("["):
            yield from self.differences(inner, found["items"], f"{path}[]")
        elif ours.startswith("{"):
            yield from self.differences(inner, found["additionalProperties"], f"{path}{{}}")
        else:
            fields = {name.rstrip("!"): of for name, of in FIELDS[ours].items()}
            if set(fields) != set(found["properties"]):
                yield f"{path}: the fields {sorted(set(fields) ^ set(found['properties']))}"
            for name in set(fields) & set(found["properties"]):
                yield from self.differences(fields[name], found["properties"][name], f"{path}.{name}")

    def whole(self, schema: Schema) -> object:
        """A value with every field that Kubernetes has."""
        kind, found = self.kind(schema)
        if kind == "fields":
            return {name: self.whole(inner) for name, inner in found["properties"].items()}
        if kind == "array":
            return [self.whole(found["items"])]
        if kind == "object":
            return {"a": self.whole(found["additionalProperties"])} if "additionalProperties" in found else {}
        return SAMPLES[kind]


def test_a_template_with_every_field_of_a_pod_is_stored_as_it_is(cluster: Cluster, namespace: str) -> None:
    pods = Pods(cluster)
    assert list(pods.differences("Pod", pods.spec, "spec")) == []
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": pods.whole(pods.spec)}
    body = document(**{process: {"template": template} for process in PROCESSES})
    cluster.rest.create(delayqueues(namespace), body, fieldValidation="Strict")
    stored = cluster.rest.get(f"{delayqueues(namespace)}/orders")
    read = parse(stored).spec
    for process in PROCESSES:
        assert stored["spec"][process]["template"] == template
        assert getattr(read, process).template == template


def test_what_deletes_is_stored_as_it_is(cluster: Cluster, namespace: str) -> None:
    container = {"name": "worker", "resources": {"limits": None, "requests": {"cpu": None, "memory": 0.5}}}
    spec = {"affinity": {"$patch": "delete"}, "securityContext": None, "containers": [container]}
    template = {"metadata": {"labels": None}, "spec": spec}
    body = document(worker={"template": template})
    stored = cluster.rest.create(delayqueues(namespace), body, fieldValidation="Strict")
    assert stored["spec"]["worker"]["template"] == template
    assert parse(stored).spec.worker.template == template
    applied = json.dumps(body | {"metadata": {"name": "applied"}})
    cluster.kubectl("apply", "--server-side", f"--namespace={namespace}", "--filename=-", input=applied)
    again = cluster.rest.get(f"{delayqueues(namespace)}/applied")
    assert again["spec"]["worker"]["template"] == template


def test_client_side_apply_takes_the_file_and_remembers_it(cluster: Cluster) -> None:
    """The file has an anchor for the template, and kubectl keeps the whole of it in an annotation."""
    file = Path(__file__).parents[2] / "crds" / "delayqueue.yaml"
    said = cluster.kubectl("apply", "--dry-run=server", "--output=json", f"--filename={file}").stdout
    crd = json.loads(said)
    kept = json.loads(crd["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert kept["spec"]["versions"][0]["schema"] == CRD["spec"]["versions"][0]["schema"]


CONTAINER: Schema = {
    "name": "worker",
    "imagePulPolicy": "Always",
    "envfrom": [],
    "env": [{"name": "A", "valuefrom": {}}],
    "resources": {"limit": {}},
    "livenessProbe": {"httpGet": {"prot": 1}},
    "lifecycle": {"prestop": {}},
    "volumeMounts": [{"mountPath": "/a", "subpath": "b"}],
    "securityContext": {"runAsNonroot": True},
}
TYPOS: Schema = {
    "specs": {},
    "metadata": {"name": "a", "label": {}},
    "spec": {
        "nodeselector": {},
        "tolerations": [{"efect": "NoExecute"}],
        "affinity": {"podAntiAfinity": {}},
        "volumes": [{"name": "a", "configmap": {}, "secret": {"name": "b"}}],
        "securityContext": {"fsgroup": 1},
        "containers": [CONTAINER],
    },
}
PATHS = {
    *("specs", "metadata.name", "metadata.label", "spec.nodeselector", "spec.tolerations[0].efect"),
    *("spec.affinity.podAntiAfinity", "spec.volumes[0].configmap", "spec.volumes[0].secret.name"),
    "spec.securityContext.fsgroup",
    *(
        f"spec.containers[0].{path}"
        for path in (
            *("imagePulPolicy", "envfrom", "env[0].valuefrom", "resources.limit", "lifecycle.prestop"),
            *("livenessProbe.httpGet.prot", "volumeMounts[0].subpath", "securityContext.runAsNonroot"),
        )
    ),
}


def test_kubectl_apply_and_the_model_refuse_a_typo_and_name_its_path(
    cluster: Cluster, namespace: str
) -> None:
    body = document(**{process: {"template": TYPOS} for process in PROCESSES})
    expected = {f"spec.{process}.template.{path}" for path in PATHS for process in PROCESSES}
    apply = ("apply", f"--namespace={namespace}", "--filename=-")
    done = cluster.kubectl(*apply, input=json.dumps(body), check=False)
    assert set(re.findall(r'unknown field "([^"]*)"', done.stderr)) == expected
    with pytest.raises(SpecError) as told:
        parse(body)
    assert {problem.path for problem in told.value.problems} == expected
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

"""What the chart makes of the operator and its rights. A real Helm, and no cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names
from delayq_operator.runtime.cli import delayq_operator as operator

from tests.cluster.chart import (
    CHART,
    EVERYTHING,
    NAMESPACE,
    RELEASE,
    find,
    helm,
    kinds,
    manifest,
    merged,
    nested,
    objects_of,
    operator_pod,
    rendered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.chart import Object, Values


CLUSTER_SCOPED = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


def pods(objects: list[Object]) -> Iterator[Object]:
    """The spec of every pod that the chart makes."""
    for each in objects:
        if each["kind"] == "Pod":
            yield each["spec"]
        elif "template" in each.get("spec", {}):
            yield each["spec"]["template"]["spec"]


# --- In general.


def test_lint_has_nothing_to_say() -> None:
    for values in ({}, EVERYTHING, {"watchNamespaces": ["a", "b"]}):
        assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), values=values)


def test_without_values_there_is_an_operator_for_the_whole_cluster_and_nothing_optional() -> None:
    made = sorted((each["kind"], each["metadata"]["name"]) for each in rendered())
    assert made == [
        ("ClusterRole", "delayq-edit"),
        ("ClusterRole", "delayq-operator"),
        ("ClusterRole", "delayq-view"),
        ("ClusterRoleBinding", "delayq-operator"),
        ("ConfigMap", "delayq-test"),
        ("CustomResourceDefinition", "delayqueues.delayq.dev"),
        ("Deployment", "delayq-operator"),
        ("Pod", "delayq-test"),
        ("Role", "delayq-operator-leader"),
        ("Role", "delayq-test"),
        ("RoleBinding", "delayq-operator-leader"),
        ("RoleBinding", "delayq-test"),
        ("Service", "delayq-operator"),
        ("ServiceAccount", "delayq-operator"),
        ("ServiceAccount", "delayq-test"),
        ("ValidatingAdmissionPolicy", "delayq-operator.delayq-system"),
        ("ValidatingAdmissionPolicy", "delayq-queues.delayq-system"),
        ("ValidatingAdmissionPolicyBinding", "delayq-operator.delayq-system"),
        ("ValidatingAdmissionPolicyBinding", "delayq-queues.delayq-system"),
    ]


TOGGLES = ("crds.install", "rbac.create", "leaderElection.enabled", "redis.enabled")


def test_whatever_is_switched_off_objects_have_names_of_their_own() -> None:
    for off in (*((each,) for each in TOGGLES), TOGGLES, ()):
        objects = rendered(merged(*(nested(path, path not in off) for path in TOGGLES)))
        identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
        assert len(identities) == len(set(identities)), off


def test_every_object_says_which_namespace_it_is_in_and_what_made_it() -> None:
    """None looks like a child of a queue; pods are not replaced for a new version of the chart alone."""
    for each in rendered(EVERYTHING):
        labels = each["metadata"]["labels"]
        assert ("namespace" in each["metadata"]) is (each["kind"] not in CLUSTER_SCOPED)
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"]
        assert names.QUEUE_LABEL not in labels
        template = each.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(template)


def test_a_packaged_chart_makes_the_same(tmp_path: Path) -> None:
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("delayq-*.tgz")
    assert helm("template", RELEASE, str(package), f"--namespace={NAMESPACE}") == manifest()


def test_a_chart_that_depends_on_this_one_switches_it_by_a_condition(tmp_path: Path) -> None:
    dependency = {"name": "delayq", "version": "*", "repository": "", "condition": "delayq.enabled"}
    umbrella = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(umbrella))
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "delayq").symlink_to(CHART)
    for enabled in (True, False):
        values = {"delayq": {"enabled": enabled, "localImages": True}}
        assert ("kind: Deployment" in helm("template", "shop", str(tmp_path), values=values)) is enabled


def test_a_long_release_name_is_cut_to_what_names_may_be() -> None:
    made = helm("template", "r" * 53, str(CHART), values=EVERYTHING)
    for each in objects_of(made):
        assert len(each["metadata"]["name"]) <= 63


NAMED: Values = merged(
    EVERYTHING,
    {
        "serviceAccount": {"name": "PLAIN"},
        "imagePullSecrets": ["PLAIN"],
        "worker": {"imagePullSecrets": ["PLAIN"]},
        "leaderElection": {"leaseName": "PLAIN"},
        "priorityClassName": "PLAIN",
        "watchNamespaces": ["PLAIN"],
        "dashboard": {"namespace": "PLAIN"},
        "redis": {"existingSecret": "PLAIN", "persistence": {"storageClassName": "PLAIN"}},
        "fullnameOverride": "PLAIN",
        "nameOverride": "PLAIN",
    },
)
"""A name wherever one can be given."""


@pytest.mark.parametrize("word", ["on", "1e3", "null"])
@pytest.mark.parametrize("values", [EVERYTHING | {"redis": {"enabled": False}}, NAMED])
def test_a_name_that_yaml_takes_for_something_else_stays_a_name(word: str, values: Values) -> None:
    def made(name: str) -> list[Object]:
        given = json.loads(json.dumps(values).replace("PLAIN", name))
        return objects_of(helm("template", name, str(CHART), f"--namespace={name}", values=given))

    plain = json.dumps(made("qqzzqq")).replace("qqzzqq", word)
    assert made(word) == json.loads(plain)


# --- The operator.


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"watchNamespaces": ["a", "b"], "log": {"level": "debug", "format": "console"}},
        {"leaderElection": {"enabled": False}},
        {"policy": {"podSecurity": "privileged", "serviceAccounts": [], "ownNamespace": True}},
        {"policy": {"serviceAccounts": ["a", "b"]}},
        {"worker": {"imagePullSecrets": ["x", "y"], "image": {"pullPolicy": "Always"}}},
    ],
)
def test_the_operator_understands_the_arguments_it_is_given(values: Values) -> None:
    (container,) = operator_pod(rendered(values))["containers"]
    assert container["command"] == ["delayq-operator"]
    context = operator.make_context("delayq-operator", list(container["args"]))
    assert list(context.params["namespaces"]) == values.get("watchNamespaces", [])
    assert context.params["leader_election"] is values.get("leaderElection", {}).get("enabled", True)
    assert context.params["worker_image"] == "delayq-worker:0.2.0"
    policy = values.get("policy", {})
    assert context.params["service_accounts"] == tuple(policy.get("serviceAccounts", ["*"])) or ("",)
    assert context.params["pod_security"] == policy.get("podSecurity", "baseline")
    assert context.params["serve_own_namespace"] is policy.get("ownNamespace", False)
    assert context.params["own_service_account"] == "delayq-operator"


@pytest.mark.parametrize("release", [RELEASE, "123"])
def test_the_operator_knows_by_what_labels_its_own_pods_are_found(release: str) -> None:
    """By those that never change: the NetworkPolicy of every queue names them."""
    made = objects_of(helm("template", release, str(CHART), values={"commonLabels": {"a": "b"}}))
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    context = operator.make_context("delayq-operator", list(container["args"]))
    assert context.params["own_labels"] == deployment["spec"]["selector"]["matchLabels"]
    assert "POD_NAMESPACE" in {each["name"] for each in container["env"]}


def test_images_take_registry_tag_and_digest() -> None:
    digest = "sha256:" + "0" * 64
    values = {
        "imageRegistry": "registry.example.com/tools/",
        "image": {"tag": "1.2"},
        "worker": {"image": {"digest": digest}},
    }
    (container,) = operator_pod(rendered(values))["containers"]
    assert container["image"] == "registry.example.com/tools/delayq-operator:1.2"
    assert f"--worker-image=registry.example.com/tools/delayq-worker@{digest}" in container["args"]


def test_without_a_lease_an_update_stops_the_old_pod_first() -> None:
    deployment = find(rendered({"leaderElection": {"enabled": False}}), "Deployment", "delayq-operator")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_pods_mount_no_token_they_do_not_use() -> None:
    used = [spec["automountServiceAccountToken"] for spec in pods(rendered(EVERYTHING))]
    assert sorted(used) == [False, True, True]  # Redis; the operator and the test


@pytest.mark.parametrize(
    ("values", "namespace", "closed"),
    [
        ({}, "default", True),
        ({"watchNamespaces": [NAMESPACE, "b"]}, "b", True),
        ({"watchNamespaces": [NAMESPACE]}, NAMESPACE, False),
        ({"policy": {"ownNamespace": True}, "watchNamespaces": [NAMESPACE, "b"]}, NAMESPACE, False),
        ({"test": {"namespace": "c"}}, "c", True),
    ],
)
def test_the_test_makes_its_queue_where_queues_are_allowed(
    values: Values, namespace: str, *, closed: bool
) -> None:
    objects = rendered(merged(values, {"redis": {"enabled": True}}))
    (container,) = find(objects, "Pod", "delayq-test")["spec"]["containers"]
    assert f"--namespace={namespace}" in container["args"]
    role = find(objects, "Role", "delayq-test")
    assert role["metadata"]["namespace"] == namespace
    copies = [rule for rule in role["rules"] if rule["resources"] == ["secrets"]]
    assert bool(copies) is (namespace != NAMESPACE)
    policy = find(objects, "ValidatingAdmissionPolicy", "delayq-queues.delayq-system")["spec"]
    assert any("request.namespace" in each["expression"] for each in policy["validations"]) is closed


# --- Permissions.


def rules(objects: list[Object], kind: str, name: str) -> list[Object]:
    found: list[Object] = find(objects, kind, name)["rules"]
    return found


def test_in_namespaced_mode_there_is_a_role_in_each_namespace_and_no_right_elsewhere() -> None:
    objects = rendered({"watchNamespaces": ["a", "b"]})
    roles = [
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in objects
        if each["kind"] == "Role"
    ]
    assert sorted(roles) == [
        ("a", "delayq-operator"),
        ("a", "delayq-test"),
        ("b", "delayq-operator"),
        (NAMESPACE, "delayq-operator-leader"),
    ]
    assert "ClusterRoleBinding" not in kinds(objects)
    assert "delayq-operator" not in {
        each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"
    }


def test_the_lease_is_the_only_one_the_operator_may_change() -> None:
    named = rules(rendered({"leaderElection": {"leaseName": "mine"}}), "Role", "delayq-operator-leader")
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in named] == [
        (None, ["create"]),
        (["mine"], ["get", "update"]),
    ]

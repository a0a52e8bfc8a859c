"""What the chart makes of its values. A real Helm, and no cluster."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq_operator import names
from delayq_operator.cli import delayq_operator as operator

from tests.cluster.chart import (
    CHART,
    EVERYTHING,
    NAMESPACE,
    RELEASE,
    Rejected,
    Values,
    find,
    helm,
    manifest,
    merged,
    operator_pod,
    rendered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.chart import Object

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


def nested(path: str, value: object) -> Values:
    """{"a": {"b": value}} for a.b."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def kinds(objects: list[Object]) -> set[str]:
    return {each["kind"] for each in objects}


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
        ("ClusterRole", "delayq-admin"),
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
    ]


TOGGLES = ("crds.install", "rbac.create", "leaderElection.enabled", "redis.enabled")


@pytest.mark.parametrize("switches", list(product([True, False], repeat=len(TOGGLES))))
def test_every_combination_of_toggles_makes_objects_with_names_of_their_own(
    switches: tuple[bool, ...],
) -> None:
    values = merged(*(nested(path, on) for path, on in zip(TOGGLES, switches, strict=True)))
    objects = rendered(values)
    identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(identities) == len(set(identities))


def test_every_object_says_which_namespace_it_is_in_and_what_made_it() -> None:
    for each in rendered(EVERYTHING):
        labels = each["metadata"]["labels"]
        assert ("namespace" in each["metadata"]) is (each["kind"] not in CLUSTER_SCOPED)
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"]


def test_nothing_of_the_chart_looks_like_a_child_of_a_queue() -> None:
    for each in rendered(EVERYTHING):
        assert names.QUEUE_LABEL not in each["metadata"]["labels"]


def test_pods_are_not_replaced_for_a_new_version_of_the_chart_alone() -> None:
    for kind, name in (("Deployment", "delayq-operator"), ("StatefulSet", "delayq-redis")):
        template = find(rendered(EVERYTHING), kind, name)["spec"]["template"]
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(template["metadata"]["labels"])


def test_a_packaged_chart_makes_the_same(tmp_path: Path) -> None:
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("delayq-*.tgz")
    assert helm("template", RELEASE, str(package), f"--namespace={NAMESPACE}") == manifest()


def test_a_long_release_name_is_cut_to_what_names_may_be() -> None:
    made = helm("template", "r" * 53, str(CHART), values=EVERYTHING)
    for each in yaml.safe_load_all(made):
        assert len(each["metadata"]["name"]) <= 63


# --- Every value does something, and none does what it cannot.


def leaves(schema: Values, path: str = "") -> Iterator[tuple[str, Values]]:
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from leaves(inner, f"{path}{name}.")
        elif name != "global":
            yield f"{path}{name}", inner


def marked(schema: Values, mark: str) -> object:
    """A valid value with a mark in it that can be found again; None where only certain values are valid."""
    match schema.get("type"), schema.get("items", {}).get("type"):
        case "string", _ if re.search(schema["pattern"], mark):
            return mark
        case "array", "object":
            return [{"name": mark}]
        case "array", "string":
            return [mark]
        case "object", _ if "patternProperties" not in schema:
            return {"mark": mark}
    return None


MARKS = {path: f"mark-{number:03}x" for number, (path, _) in enumerate(leaves(SCHEMA))}
MARKED = merged(
    *(nested(path, value) for path, schema in leaves(SCHEMA) if (value := marked(schema, MARKS[path])))
)
OTHER_MONITOR = {"serviceMonitor": {"enabled": False}, "podMonitor": {"enabled": True}}


def test_every_value_that_can_hold_a_mark_passes_it_on() -> None:
    made = manifest(merged(EVERYTHING, MARKED)) + manifest(merged(EVERYTHING, MARKED, OTHER_MONITOR))
    given = json.dumps(MARKED)
    assert [path for path, mark in MARKS.items() if mark in given and mark not in made] == []


CHANGES: Values = {
    path: {"boolean": True, "integer": 10}.get(schema.get("type", ""))
    for path, schema in leaves(SCHEMA)
    if marked(schema, "mark") is None
} | {
    **dict.fromkeys(("image.digest", "worker.image.digest", "redis.image.digest"), "sha256:" + "a" * 64),
    **dict.fromkeys(("image.pullPolicy", "worker.image.pullPolicy", "redis.image.pullPolicy"), "Always"),
    **dict.fromkeys(("podMonitor.interval", "serviceMonitor.interval"), "7s"),
    **dict.fromkeys(("podMonitor.scrapeTimeout", "serviceMonitor.scrapeTimeout"), "7s"),
    "livenessProbe": {"periodSeconds": 7},
    "readinessProbe": {"periodSeconds": 7},
    "log.level": "debug",
    "log.format": "console",
    "networkPolicy.apiServerPorts": [7],
    "podDisruptionBudget.maxUnavailable": "7%",
    "redis.config": {"timeout": 7},
    "redis.maxMemory": "7mb",
    "redis.persistence.size": "7Gi",
}


@cache
def comparable(values: str) -> str:
    """What is rendered, as text; the password is random."""
    return re.sub(r"password: \S+", "", manifest(json.loads(values)))


@pytest.mark.parametrize("path", CHANGES)
def test_every_other_value_changes_what_is_made(path: str) -> None:
    base = merged(EVERYTHING, OTHER_MONITOR) if path.startswith("podMonitor") else EVERYTHING
    base = {} if path == "leaderElection.enabled" else base  # what EVERYTHING has in numbers needs it
    value = path not in toggled_on(base) if CHANGES[path] is True else CHANGES[path]
    change = nested(path, value)
    assert comparable(json.dumps(merged(base, change))) != comparable(json.dumps(base))


def toggled_on(values: Values) -> set[str]:
    """Paths that are true, in these values or by default."""
    all_values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    return {path for path, _ in leaves(SCHEMA) if at(all_values, path) is True}


def at(values: Values, path: str) -> Any:  # noqa: ANN401 -- whatever a value is
    found: Any = values
    for key in path.split("."):
        found = found[key]
    return found


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": "2"}, "replicas"),
        ({"image": {"name": "x"}}, "image"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"imagePullSecrets": [{"name": "x"}]}, "imagePullSecrets"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["Shop"]}, "watchNamespaces"),
        ({"watchNamespaces": ["shop", "shop"]}, "watchNamespaces"),
        ({"log": {"level": "INFO"}}, "level"),
        ({"reconcile": {"workers": 0}}, "workers"),
        ({"podLabels": {"a": 1}}, "podLabels"),
        ({"serviceMonitor": {"interval": "half an hour"}}, "interval"),
        ({"livenessProbe": {"httpGet": {"path": "/"}}}, "livenessProbe"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"networkPolicy": {"apiServerPorts": []}}, "apiServerPorts"),
        ({"redis": {"replicas": 3}}, "redis"),
        ({"redis": {"maxMemory": "lots"}}, "maxMemory"),
        ({"redis": {"config": {"Timeout": 7}}}, "config"),
        ({"test": {"timeoutSeconds": 1}}, "timeoutSeconds"),
    ],
    ids=json.dumps,
)
def test_a_value_that_does_not_fit_is_refused_by_name(values: Values, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        manifest(values)


def test_values_that_exclude_each_other_are_refused_with_what_to_do() -> None:
    with pytest.raises(Rejected, match=r"needs leaderElection\.enabled"):
        manifest({"replicas": 2, "leaderElection": {"enabled": False}})
    with pytest.raises(Rejected, match="maxmemory-policy is set by the chart"):
        manifest({"redis": {"config": {"maxmemory-policy": "allkeys-lru"}}})
    with pytest.raises(Rejected, match="enable one"):
        manifest({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}})


def test_a_kubernetes_without_stable_rules_in_crds_is_refused() -> None:
    manifest({}, "--kube-version=1.29.0")
    with pytest.raises(Rejected, match="kubeVersion"):
        manifest({}, "--kube-version=1.28.9")


# --- The operator.


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"watchNamespaces": ["a", "b"], "log": {"level": "debug", "format": "console"}},
        {"leaderElection": {"enabled": False}},
        {"worker": {"imagePullSecrets": ["x", "y"], "image": {"pullPolicy": "Always"}}},
    ],
)
def test_the_operator_understands_the_arguments_it_is_given(values: Values) -> None:
    (container,) = operator_pod(rendered(values))["containers"]
    assert container["command"] == ["delayq-operator"]
    context = operator.make_context("delayq-operator", list(container["args"]))
    assert list(context.params["namespaces"]) == values.get("watchNamespaces", [])
    assert context.params["leader_election"] is values.get("leaderElection", {}).get("enabled", True)
    assert context.params["worker_image"] == "delayq-worker:0.1.0"


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
        ("b", "delayq-operator"),
        (NAMESPACE, "delayq-operator-leader"),
        (NAMESPACE, "delayq-test"),
    ]
    assert "ClusterRoleBinding" not in kinds(objects)
    assert "delayq-operator" not in {
        each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"
    }


def test_both_modes_give_the_same_rights() -> None:
    everywhere = rules(rendered(), "ClusterRole", "delayq-operator")
    assert everywhere == rules(rendered({"watchNamespaces": ["a"]}), "Role", "delayq-operator")


def test_the_lease_is_the_only_one_the_operator_may_change() -> None:
    named = rules(rendered({"leaderElection": {"leaseName": "mine"}}), "Role", "delayq-operator-leader")
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in named] == [
        (None, ["create"]),
        (["mine"], ["get", "update"]),
    ]


def test_no_rule_of_the_operator_uses_a_wildcard() -> None:
    for rule in rules(rendered(), "ClusterRole", "delayq-operator"):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


# --- Redis.


def test_redis_keeps_what_it_is_given_and_says_that_it_is_alone() -> None:
    objects = rendered({"redis": {"enabled": True, "config": {"timeout": 7}}})
    config = find(objects, "ConfigMap", "delayq-redis")["data"]["redis.conf"].splitlines()
    assert {"appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction", "timeout 7"} <= set(
        config
    )
    redis = find(objects, "StatefulSet", "delayq-redis")
    assert redis["metadata"]["labels"]["delayq.dev/high-availability"] == "none"
    assert redis["spec"]["replicas"] == 1
    assert [claim["metadata"]["name"] for claim in redis["spec"]["volumeClaimTemplates"]] == ["data"]


def test_redis_without_a_volume_has_an_empty_directory() -> None:
    redis = find(
        rendered({"redis": {"enabled": True, "persistence": {"enabled": False}}}),
        "StatefulSet",
        "delayq-redis",
    )
    assert "volumeClaimTemplates" not in redis["spec"]
    assert {"name": "data", "emptyDir": {}} in redis["spec"]["template"]["spec"]["volumes"]


def test_a_secret_of_ones_own_is_used_and_none_made() -> None:
    objects = rendered({"redis": {"enabled": True, "existingSecret": "mine"}})
    assert "Secret" not in kinds(objects)
    assert '"mine"' in json.dumps(find(objects, "StatefulSet", "delayq-redis"))
    assert '"mine"' in json.dumps(find(objects, "Pod", "delayq-test"))


# --- helm test.


def test_the_test_reads_the_secrets_that_its_redis_refers_to() -> None:
    redis = {
        "standalone": {"host": "redis.shop.svc"},
        "authSecretRef": {"name": "login", "usernameKey": "user"},
        "tls": {"caSecretRef": {"name": "authority"}, "clientCertSecretRef": {"name": "login"}},
    }
    objects = rendered({"test": {"redis": redis}})
    assert json.loads(find(objects, "ConfigMap", "delayq-test")["data"]["redis.json"]) == redis
    (volume, _) = find(objects, "Pod", "delayq-test")["spec"]["volumes"]
    sources = [source["secret"] for source in volume["projected"]["sources"] if "secret" in source]
    assert [item["path"] for source in sources for item in source["items"]] == [
        "secrets/login/user",
        "secrets/login/password",
        "secrets/authority/ca.crt",
        "secrets/login/tls.crt",
        "secrets/login/tls.key",
    ]


def test_the_test_knows_when_there_is_no_redis() -> None:
    assert find(rendered(), "ConfigMap", "delayq-test")["data"]["redis.json"] == "{}"


def test_every_part_of_the_test_is_gone_when_it_has_passed() -> None:
    hooks = [each for each in rendered() if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert kinds(hooks) == {"ConfigMap", "Pod", "Role", "RoleBinding", "ServiceAccount"}
    for each in hooks:
        policy = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded"


# --- Monitoring.


def test_alerts_are_about_this_release_and_carry_the_labels_asked_for() -> None:
    values = {
        "prometheusRule": {
            "enabled": True,
            "alertLabels": {"team": "shop"},
            "extraRules": [{"record": "x", "expr": "1"}],
        }
    }
    (group,) = find(rendered(values), "PrometheusRule", "delayq-operator")["spec"]["groups"]
    *alerts, extra = group["rules"]
    assert extra == {"record": "x", "expr": "1"}
    assert all(f'namespace="{NAMESPACE}"' in alert["expr"] for alert in alerts)
    assert all(set(alert["labels"]) == {"severity", "team"} for alert in alerts)
    assert "{{ $labels.resource }}" in json.dumps(alerts)


def test_the_dashboard_is_the_file() -> None:
    objects = rendered({"dashboard": {"enabled": True, "namespace": "grafana"}})
    board = find(objects, "ConfigMap", "delayq-dashboard")
    assert board["metadata"]["namespace"] == "grafana"
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["delayq.json"]) == json.loads(
        (CHART / "files/dashboard.json").read_text()
    )

"""What the chart makes of the operator, its rights, Redis, helm test and alerts. A real Helm, and no cluster."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import yaml
from delayq_operator.base import names
from delayq_operator.runtime.cli import delayq_operator as operator

from tests.offline.chart import (
    CHART,
    DIGEST,
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
    released,
    rendered,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.offline.chart import Object, Values


def test_lint_has_nothing_to_say() -> None:
    for values in ({}, EVERYTHING | {"watchNamespaces": ["a", "b"]}):
        assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), values=values)


def test_without_values_there_is_an_operator_for_the_whole_cluster_and_nothing_optional() -> None:
    made = {(each["kind"], each["metadata"]["name"]) for each in rendered()}
    assert made == {
        *(("ClusterRole", f"delayq-{each}") for each in ("edit", "operator", "scanner", "view")),
        ("ClusterRoleBinding", "delayq-operator"),
        *(("CustomResourceDefinition", f"delay{each}.delayq.dev") for each in ("queues", "schedules")),
        *((kind, "delayq-operator") for kind in ("Deployment", "Service", "ServiceAccount")),
        *((kind, "delayq-operator") for kind in ("NetworkPolicy", "PodDisruptionBudget")),
        *((kind, "delayq-operator-leader") for kind in ("Role", "RoleBinding")),
        *((kind, "delayq-test") for kind in ("ConfigMap", "Pod", "Role", "RoleBinding", "ServiceAccount")),
        *(
            (f"ValidatingAdmissionPolicy{kind}", f"delayq-{each}.delayq-system")
            for kind in ("", "Binding")
            for each in ("operator", "queues")
        ),
    }


TOGGLES = ("crds.install", "rbac.create", "leaderElection.enabled", "redis.enabled")


def test_with_any_part_switched_off_objects_have_names_of_their_own() -> None:
    for off in (TOGGLES, ()):
        values = merged({"replicas": 1}, *(nested(path, path not in off) for path in TOGGLES))
        objects = rendered(values)
        identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
        assert len(identities) == len(set(identities)), off


def test_every_object_says_which_namespace_it_is_in_and_what_made_it() -> None:
    """None looks like a child of a queue; pods are not replaced for a new version of the chart alone."""
    objects = rendered(EVERYTHING)
    for each in objects:
        labels = each["metadata"]["labels"]
        cluster_scoped = each["kind"].startswith(("Cluster", "CustomResource", "Validating"))
        assert ("namespace" in each["metadata"]) is not cluster_scoped
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"]
        assert names.QUEUE_LABEL not in labels
        template = each.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(template)
    made = [each["spec"] for each in objects if each["kind"] == "Pod"]
    made += [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]
    tokens = [spec["automountServiceAccountToken"] for spec in made]
    assert sorted(tokens) == [False, True, True]  # Redis; the operator and the test


def test_a_packaged_chart_makes_the_same(tmp_path: Path) -> None:
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("delayq-*.tgz")
    assert helm("template", RELEASE, str(package), f"--namespace={NAMESPACE}") == manifest()


def test_the_chart_of_a_release_needs_no_values(tmp_path: Path) -> None:
    """Its images are those of the release, by their digests."""
    chart = released(tmp_path, "registry.example.com/delayq", "0.9.0")
    made = objects_of(helm("template", "shop", str(chart), values={"localImages": False}))
    images = set(re.findall(r"(?:image|worker-image)[=:] ?([\w./-]+@sha256:\w+)", yaml.safe_dump_all(made)))
    assert images == {
        f"registry.example.com/delayq/delayq-{each}@{DIGEST}" for each in ("operator", "worker")
    }


def test_a_chart_that_depends_on_this_one_switches_it_by_a_condition(tmp_path: Path) -> None:
    dependency = {"name": "delayq", "version": "*", "repository": "", "condition": "delayq.enabled"}
    umbrella = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(umbrella))
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "delayq").symlink_to(CHART)
    for enabled in (True, False):
        values = {"delayq": {"enabled": enabled, "localImages": True}}
        assert ("kind: Deployment" in helm("template", "shop", str(tmp_path), values=values)) is enabled


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
        "redis": {"existingSecret": "PLAIN", "queues": [], "persistence": {"storageClassName": "PLAIN"}},
        "fullnameOverride": "PLAIN",
        "nameOverride": "PLAIN",
    },
)
"""A name wherever one can be given."""


def test_a_name_that_yaml_takes_for_something_else_stays_a_name() -> None:
    def made(name: str, values: Values) -> list[Object]:
        given = json.loads(json.dumps(values).replace("PLAIN", name))
        return objects_of(helm("template", name, str(CHART), f"--namespace={name}", values=given))

    for values in (EVERYTHING | {"redis": {"enabled": False}}, NAMED):
        plain = json.dumps(made("qqzzqq", values))
        for word in ("on", "1e3", "null"):
            assert made(word, values) == json.loads(plain.replace("qqzzqq", word)), word


# --- The operator.

GIVEN: tuple[Values, ...] = (
    {},
    {"watchNamespaces": ["a", "b"], "leaderElection": {"enabled": False}, "replicas": 1},
    {
        "policy": {"podSecurity": "privileged", "serviceAccounts": [], "ownNamespace": True},
        "log": {"level": "debug", "format": "console"},
        "worker": {"imagePullSecrets": ["x", "y"], "image": {"pullPolicy": "Always"}},
    },
    {"policy": {"serviceAccounts": ["a", "b"]}},
)


def test_the_operator_understands_the_arguments_it_is_given() -> None:
    for values in GIVEN:
        (container,) = operator_pod(rendered(values))["containers"]
        assert container["command"] == ["delayq-operator"]
        params = operator.make_context("delayq-operator", list(container["args"])).params
        policy = values.get("policy", {})
        assert list(params["namespaces"]) == values.get("watchNamespaces", [])
        assert params["leader_election"] is ("leaderElection" not in values)
        assert params["worker_image"] == "delayq-worker:0.9.0"
        assert params["service_accounts"] == (tuple(policy.get("serviceAccounts", ["*"])) or ("",))
        assert params["pod_security"] == policy.get("podSecurity", "baseline")
        assert params["serve_own_namespace"] is policy.get("ownNamespace", False)
        assert params["own_service_account"] == "delayq-operator"


def test_the_operator_gets_the_labels_of_its_own_pods() -> None:
    """By those that never change: the NetworkPolicy of every queue names them."""
    for release in ("123", "r" * 53):
        made = objects_of(
            helm("template", release, str(CHART), values=EVERYTHING | {"commonLabels": {"a": "b"}})
        )
        assert [each for each in made if len(each["metadata"]["name"]) > 63] == []
        (deployment,) = [each for each in made if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        context = operator.make_context("delayq-operator", list(container["args"]))
        assert context.params["own_labels"] == deployment["spec"]["selector"]["matchLabels"]
        assert "POD_NAMESPACE" in {each["name"] for each in container["env"]}


def test_without_a_lease_an_update_stops_the_old_pod_first() -> None:
    alone = {"leaderElection": {"enabled": False}, "replicas": 1}
    deployment = find(rendered(alone), "Deployment", "delayq-operator")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_in_namespaced_mode_there_is_no_right_elsewhere_and_one_lease_to_change() -> None:
    objects = rendered({"watchNamespaces": ["a", "b"], "leaderElection": {"leaseName": "mine"}})
    assert "ClusterRoleBinding" not in kinds(objects)
    made = [(each["kind"], each["metadata"]["name"]) for each in objects]
    for name in ("delayq-operator", "delayq-scanner"):
        assert (made.count(("ClusterRole", name)), made.count(("Role", name))) == (0, 2)
    of_operators = [
        rule
        for each in objects
        if each["metadata"]["name"] == "delayq-operator"
        for rule in each.get("rules", ())
    ]
    assert not any({"roles", "clusterroles"} & {*rule["resources"]} for rule in of_operators)
    named = find(objects, "Role", "delayq-operator-leader")["rules"]
    assert [rule.get("resourceNames") for rule in named] == [None, ["mine"]]


def test_the_operator_may_bind_the_role_of_scanners_and_write_no_role() -> None:
    rules = [
        rule
        for rule in find(rendered(), "ClusterRole", "delayq-operator")["rules"]
        if {"roles", "clusterroles", "*"} & {*rule["resources"], *rule["verbs"]}
    ]
    group = ["rbac.authorization.k8s.io"]
    wanted = {
        "apiGroups": group,
        "resources": ["clusterroles"],
        "resourceNames": ["delayq-scanner"],
        "verbs": ["bind"],
    }
    assert rules == [wanted]
    args = find(rendered(), "Deployment", "delayq-operator")["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    assert "--scanner-role=delayq-scanner" in args


# --- Redis.


def test_redis_keeps_its_data_on_a_volume_and_says_that_it_is_alone() -> None:
    redis = find(rendered({"redis": {"enabled": True}}), "StatefulSet", "delayq-redis")
    assert redis["metadata"]["labels"]["delayq.dev/high-availability"] == "none"
    assert redis["spec"]["replicas"] == 1
    assert [claim["metadata"]["name"] for claim in redis["spec"]["volumeClaimTemplates"]] == ["data"]
    given = {"enabled": True, "persistence": {"enabled": False}, "existingSecret": "mine", "queues": []}
    without = rendered({"redis": given})
    redis = find(without, "StatefulSet", "delayq-redis")
    assert "volumeClaimTemplates" not in redis["spec"]
    assert {"name": "data", "emptyDir": {}} in redis["spec"]["template"]["spec"]["volumes"]
    assert "Secret" not in kinds(without)
    assert '"mine"' in json.dumps(redis)
    assert '"mine"' in json.dumps(find(without, "Pod", "delayq-test"))


# --- helm test.


PLACES: tuple[tuple[Values, str, bool], ...] = (
    ({}, "default", True),
    ({"watchNamespaces": [NAMESPACE, "b"]}, "b", True),
    ({"watchNamespaces": [NAMESPACE]}, NAMESPACE, False),
    ({"policy": {"ownNamespace": True}, "watchNamespaces": [NAMESPACE, "b"]}, NAMESPACE, False),
    ({"test": {"namespace": "c"}}, "c", True),
)


def test_the_test_makes_its_queue_where_queues_are_allowed() -> None:
    for values, namespace, closed in PLACES:
        objects = rendered(merged(values, {"redis": {"enabled": True}}))
        (container,) = find(objects, "Pod", "delayq-test")["spec"]["containers"]
        assert f"--namespace={namespace}" in container["args"]
        role = find(objects, "Role", "delayq-test")
        assert role["metadata"]["namespace"] == namespace
        copies = [rule for rule in role["rules"] if rule["resources"] == ["secrets"]]
        assert bool(copies) is (namespace != NAMESPACE)
        policy = find(objects, "ValidatingAdmissionPolicy", "delayq-queues.delayq-system")["spec"]
        assert any("request.namespace" in each["expression"] for each in policy["validations"]) is closed


def test_the_test_leaves_its_pod_to_look_at() -> None:
    """Whether it passed or failed; the next run replaces it, and what it needs goes when it has passed."""
    hooks = [each for each in rendered() if each["metadata"]["name"] == "delayq-test"]
    policies = {
        each["kind"]: each["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        for each in hooks
    }
    assert policies.pop("Pod") == ["before-hook-creation"]
    assert all(set(each) == {"before-hook-creation", "hook-succeeded"} for each in policies.values())


def test_the_test_reads_the_secrets_that_its_redis_refers_to() -> None:
    login = {"name": "login"}
    redis = {
        "standalone": {"host": "redis.shop.svc"},
        "auth": {"usernameSecretRef": login | {"key": "user"}, "passwordSecretRef": login},
        "tls": {"caConfigMapRef": {"name": "authority"}, "certSecretRef": login, "keySecretRef": login},
    }
    objects = rendered({"test": {"redis": redis}})
    assert json.loads(find(objects, "ConfigMap", "delayq-test")["data"]["redis.json"]) == redis
    (volume, _) = find(objects, "Pod", "delayq-test")["spec"]["volumes"]
    (_, *sources) = volume["projected"]["sources"]
    mounted = [item["path"] for source in sources for each in source.values() for item in each["items"]]
    of_login = [f"secrets/login/{key}" for key in ("user", "password", "tls.crt", "tls.key")]
    assert mounted == [*of_login[:2], "secrets/_configmaps/authority/ca.crt", *of_login[2:]]


# --- Monitoring.


def test_alerts_are_about_this_release_and_the_dashboard_is_the_file() -> None:
    rule = {"alertLabels": {"team": "shop"}, "extraRules": [{"record": "x", "expr": "1"}]}
    objects = rendered(
        {
            "prometheusRule": {"enabled": True, **rule},
            "dashboard": {"enabled": True, "namespace": "grafana"},
        }
    )
    (group,) = find(objects, "PrometheusRule", "delayq-operator")["spec"]["groups"]
    *alerts, extra = group["rules"]
    assert extra == {"record": "x", "expr": "1"}
    assert all(f'namespace="{NAMESPACE}"' in alert["expr"] for alert in alerts)
    assert all(set(alert["labels"]) == {"severity", "team"} for alert in alerts)
    assert "{{ $value | humanizeDuration }}" in json.dumps(alerts)
    board = find(objects, "ConfigMap", "delayq-dashboard")
    assert board["metadata"]["namespace"] == "grafana"
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    kept = json.loads((CHART / "files/dashboard.json").read_text())
    assert json.loads(board["data"]["delayq.json"]) == kept

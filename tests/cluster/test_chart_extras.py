"""What the chart makes beside the operator: Redis, helm test, alerts, dashboard. A real Helm, and no cluster."""

from __future__ import annotations

import json

from tests.cluster.chart import CHART, NAMESPACE, find, kinds, rendered

# --- Redis.


def test_redis_keeps_its_data_on_a_volume_and_says_that_it_is_alone() -> None:
    redis = find(rendered({"redis": {"enabled": True}}), "StatefulSet", "delayq-redis")
    assert redis["metadata"]["labels"]["delayq.dev/high-availability"] == "none"
    assert redis["spec"]["replicas"] == 1
    assert [claim["metadata"]["name"] for claim in redis["spec"]["volumeClaimTemplates"]] == ["data"]
    without = rendered({"redis": {"enabled": True, "persistence": {"enabled": False}}})
    redis = find(without, "StatefulSet", "delayq-redis")
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
        "auth": {
            "usernameSecretRef": {"name": "login", "key": "user"},
            "passwordSecretRef": {"name": "login"},
        },
        "tls": {
            "caConfigMapRef": {"name": "authority"},
            "certSecretRef": {"name": "login"},
            "keySecretRef": {"name": "login"},
        },
    }
    objects = rendered({"test": {"redis": redis}})
    assert json.loads(find(objects, "ConfigMap", "delayq-test")["data"]["redis.json"]) == redis
    (volume, _) = find(objects, "Pod", "delayq-test")["spec"]["volumes"]
    (_, *sources) = volume["projected"]["sources"]
    mounted = [each for source in sources for each in source.values()]
    assert [item["path"] for each in mounted for item in each["items"]] == [
        "secrets/login/user",
        "secrets/login/password",
        "secrets/_configmaps/authority/ca.crt",
        "secrets/login/tls.crt",
        "secrets/login/tls.key",
    ]


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

"""The children of spec.api: they come and go with it, and change nothing for queues without it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names
from delayq_operator.desired import desired
from delayq_operator.desired.policy import Policy, of_templates
from delayq_operator.reconcile.facts import stored_keys

from tests.unit.operator.queues import RICH, SETTING, facts, queue

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

Object = dict[str, Any]
WEB: Object = {"serviceAccount": {"namespace": "web", "name": "shop"}, "verbs": ["schedule"]}
PHP: Object = {"token": "php", "verbs": ["schedule"]}
API: Object = {"allowPlainHttp": True, "access": [WEB]}
NAMED: Object = {**API, "access": [PHP], "tokensSecretRef": {"name": "shop-tokens"}}
KEYS = '{"issuer": "https://a", "keys": []}'


def children(of: DelayQueue, **more: object) -> dict[tuple[str, str], Object]:
    made = desired(of, SETTING, facts(of, **more))
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pod(of: DelayQueue, **more: object) -> Object:
    made: Object = children(of, **more)["Deployment", "orders-api"]["spec"]["template"]
    return made


def checksums(of: DelayQueue) -> dict[str, str]:
    """The checksum of each Deployment: a change replaces its pods."""
    return {
        name: each["spec"]["template"]["metadata"]["annotations"]["delayq.dev/checksum"]
        for (kind, name), each in children(of).items()
        if kind == "Deployment"
    }


def test_spec_api_adds_children_and_replaces_no_other_pods() -> None:
    without, with_api = children(queue()), children(queue(api=API), issuer_keys=KEYS)
    added = {("ConfigMap", "orders-api"), ("Service", "orders-api"), ("Deployment", "orders-api")}
    assert with_api.keys() - without.keys() == {*added, ("PodDisruptionBudget", "orders-api")}
    assert without.keys() - with_api.keys() == set()
    changed = {key for key, each in without.items() if each != with_api[key]}
    assert changed == {("ConfigMap", "orders-config")}  # the document itself
    assert checksums(queue()).items() < checksums(queue(api=API)).items()


@pytest.mark.parametrize("name", ["0.9-x.end", "9", "a" * 63, "a.b"])
def test_the_service_has_a_name_that_services_can_have(name: str) -> None:
    """And the Deployment and the ConfigMap have the same, by which the volume finds it."""
    found = names.api(name)
    assert re.fullmatch("[a-z][-a-z0-9]{0,61}[a-z0-9]", found)
    assert {names.child(name, "api"), names.deployment(name, "api")} == {found}


@pytest.mark.parametrize(
    ("change", "replaced"),
    [
        ({"replicas": 5}, False),
        ({"access": [WEB, {**WEB, "verbs": ["read"]}]}, True),
        (
            {"tls": {"certSecretRef": {"name": "a"}, "keySecretRef": {"name": "a"}}, "allowPlainHttp": False},
            True,
        ),
    ],
)
def test_pods_are_replaced_by_what_they_read_when_they_start(change: Object, *, replaced: bool) -> None:
    before, after = (checksums(queue(api=api))["orders-api"] for api in (API, {**API, **change}))
    assert (before != after) == replaced


def test_pods_read_the_keys_only_where_an_account_has_rights() -> None:
    """Named tokens alone need no keys, and get no ConfigMap."""
    assert children(queue(api=API), issuer_keys=KEYS)["ConfigMap", "orders-api"]["data"] == {
        "jwks.json": KEYS
    }
    assert ("ConfigMap", "orders-api") not in children(queue(api=API))
    assert ("ConfigMap", "orders-api") not in children(queue(api=NAMED), issuer_keys=KEYS)
    for api, mounted in ((API, ["issuer/jwks.json"]), (NAMED, ["secrets/shop-tokens/php"])):
        sources = pod(queue(api=api))["spec"]["volumes"][0]["projected"]["sources"][1:]
        items = [(item["path"], each["optional"]) for each in map(source, sources) for item in each["items"]]
        assert items == [(path, True) for path in mounted]


def source(given: Object) -> Object:
    [found] = given.values()
    return dict(found)


def test_stored_keys_stay_while_the_api_server_does_not_tell_them() -> None:
    """Else a restart of the operator during an outage would delete them, and all producers be refused."""
    stored = children(queue(api=API), issuer_keys=KEYS)["ConfigMap", "orders-api"]
    live = Live(stored, owner_uid="a")
    assert stored_keys("orders", {("ConfigMap", "orders-api"): live}) == KEYS  # type: ignore[dict-item]
    assert stored_keys("orders", {}) == ""
    foreign = Live(stored, owner_uid=None)
    assert stored_keys("orders", {("ConfigMap", "orders-api"): foreign}) == ""  # type: ignore[dict-item]


class Live:
    """A child in the cache."""

    def __init__(self, body: Object, owner_uid: str | None) -> None:
        self.body, self.owner_uid = body, owner_uid


def test_the_service_has_the_port_of_its_protocol() -> None:
    tls = {"certSecretRef": {"name": "a"}, "keySecretRef": {"name": "a"}}
    ports = [
        children(queue(api=api))["Service", "orders-api"]["spec"]["ports"]
        for api in (API, {"access": [WEB], "tls": tls})
    ]
    assert [(each["name"], each["port"], each["targetPort"]) for [each] in ports] == [
        ("http", 80, "api"),
        ("https", 443, "api"),
    ]
    [container] = pod(queue(api=API))["spec"]["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "metrics": 8080,
        "api": 8090,
    }


def test_api_pods_are_placed_as_scanners_and_get_nothing_else_of_their_template() -> None:
    template = {
        "metadata": {"labels": {"team": "checkout"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "serviceAccountName": "cloud",
            "hostNetwork": True,
            "containers": [
                {"name": "scanner", "env": [{"name": "A", "value": "1"}]},
                {"name": "proxy", "image": "b"},
            ],
            "volumes": [{"name": "c", "emptyDir": {}}],
        },
    }
    made = pod(queue(api=API, scanner={"template": template}))
    assert made["metadata"]["labels"]["team"] == "checkout"
    spec = made["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == (
        {"disk": "ssd"},
        [{"key": "spot", "operator": "Exists"}],
    )
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("orders-delayq", False)
    assert "hostNetwork" not in spec
    assert [each["name"] for each in spec["containers"]] == ["api"]
    assert "env" not in spec["containers"][0]
    assert [each["name"] for each in spec["volumes"]] == ["delayq", "tmp"]


def test_what_the_policy_forbids_in_the_template_of_scanners_is_named_once_there() -> None:
    template = {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}
    of = queue(api=API, scanner={"template": template})
    problems = of_templates(desired(of, SETTING, facts(of)), Policy())
    assert {each.path for each in problems} == {
        "spec.scanner.template.spec.securityContext.seccompProfile.type"
    }


def test_with_a_network_policy_the_api_stays_reachable_for_those_that_it_names() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}]
    for more, allowed in (({}, {}), ({"apiFrom": peers}, {"from": peers})):
        of = queue(api=API, networkPolicy={"enabled": True, **more})
        rules = children(of)["NetworkPolicy", "orders-delayq"]["spec"]["ingress"]
        assert {"ports": [{"port": 8090, "protocol": "TCP"}], **allowed} in rules
    closed = children(queue(networkPolicy={"enabled": True}))["NetworkPolicy", "orders-delayq"]["spec"][
        "ingress"
    ]
    assert 8090 not in {port["port"] for rule in closed for port in rule["ports"]}


def test_prometheus_scrapes_the_api_where_there_is_one() -> None:
    monitoring = {"podMonitor": {"enabled": True}}
    scraped = [
        children(queue(monitoring=monitoring, **more))["PodMonitor", "orders-delayq"]["spec"]["selector"]
        for more in ({}, {"api": API})
    ]
    values = [each["matchExpressions"][0]["values"] for each in scraped]
    assert values == [["scanner", "worker"], ["scanner", "worker", "api"]]


def test_the_pods_of_a_rich_document_satisfy_the_standard_restricted() -> None:
    spec = pod(queue(RICH))["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }

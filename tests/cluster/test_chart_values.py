"""Every value of the chart does something, and one that cannot is refused by name. A real Helm, and no cluster."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.chart import CHART, EVERYTHING, Rejected, manifest, merged, nested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.chart import Values


SCHEMA = json.loads((CHART / "values.schema.json").read_text())


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
        case "array", "string" if "enum" not in schema["items"]:
            return [mark]
        case "array", ["string", "object"]:
            return [{"name": mark}]
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
    if marked(schema, "mark") is None and path not in {"enabled", "localImages"}  # these make no object
} | {
    **dict.fromkeys(("image.digest", "worker.image.digest", "redis.image.digest"), "sha256:" + "a" * 64),
    **dict.fromkeys(("image.pullPolicy", "worker.image.pullPolicy", "redis.image.pullPolicy"), "Always"),
    **dict.fromkeys(("podMonitor.interval", "serviceMonitor.interval"), "7s"),
    **dict.fromkeys(("podMonitor.scrapeTimeout", "serviceMonitor.scrapeTimeout"), "7s"),
    "prometheusRule.disabled": ["DelayQueueOperatorBacklog"],
    "dnsConfig": {"searches": ["shop.example"]},
    "livenessProbe": {"periodSeconds": 7},
    "readinessProbe": {"periodSeconds": 7},
    "log.level": "debug",
    "log.format": "console",
    "policy.podSecurity": "privileged",
    "networkPolicy.apiServerPorts": [7],
    "podDisruptionBudget.maxUnavailable": "7%",
    "redis.config": {"timeout": 7},
    "redis.users": {"delayq-orders": f"on #{'a' * 64} ~delayq:{{orders:* +get"},
    "redis.maxMemory": "7mb",
    "redis.persistence.size": "7Gi",
}


def comparable(values: Values) -> str:
    """What is rendered, as text; the password is random."""
    return re.sub(r"password: \S+", "", manifest(values))


def test_every_other_value_changes_what_is_made() -> None:
    assert [path for path in CHANGES if not changes(path)] == []


def changes(path: str) -> bool:
    base = merged(EVERYTHING, OTHER_MONITOR) if path.startswith("podMonitor") else EVERYTHING
    base = {} if path == "leaderElection.enabled" else base  # what EVERYTHING has in numbers needs it
    base = merged(base, {"serviceAccount": {"name": "theirs"}})  # what is not created needs one
    value = path not in toggled_on(base) if CHANGES[path] is True else CHANGES[path]
    return comparable(merged(base, nested(path, value))) != comparable(base)


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
        ({"imagePullSecrets": [{"secret": "x"}]}, "imagePullSecrets"),
        ({"worker": {"imagePullSecrets": [{"name": "X"}]}}, "imagePullSecrets"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["Shop"]}, "watchNamespaces"),
        ({"watchNamespaces": ["shop", "shop"]}, "watchNamespaces"),
        ({"log": {"level": "INFO"}}, "level"),
        ({"reconcile": {"workers": 0}}, "workers"),
        ({"policy": {"podSecurity": "restricted"}}, "podSecurity"),
        ({"policy": {"serviceAccounts": ["a b"]}}, "serviceAccounts"),
        ({"podLabels": {"a": 1}}, "podLabels"),
        ({"serviceMonitor": {"interval": "half an hour"}}, "interval"),
        ({"dnsConfig": {"nameserver": []}}, "dnsConfig"),
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


NOWHERE: Values = {"localImages": False}
FULL = {"repository": "ghcr.io/shop/delayq"}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({}, "image"),
        ({"image": FULL}, "worker.image"),
        ({"worker": {"image": FULL}}, "image"),
        ({"image": {"digest": "sha256:" + "a" * 64}}, "image"),
    ],
    ids=json.dumps,
)
def test_an_image_that_no_registry_serves_is_refused_with_what_to_do(values: Values, path: str) -> None:
    """A name without a registry is looked for on Docker Hub, where delayq is not."""
    with pytest.raises(
        Rejected, match=rf"imageRegistry is empty and {path}\.repository is delayq-"
    ) as refused:
        manifest(merged(NOWHERE, values))
    for part in (
        "docs/how-to/images.md",
        "--set imageRegistry=registry.example.com/tools",
        "--set localImages=true",
    ):
        assert part in str(refused.value)
    assert (CHART.parents[1] / "docs" / "how-to" / "images.md").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"imageRegistry": "registry.example.com/tools"},
        {"image": FULL, "worker": {"image": FULL}},
        {"localImages": True},
    ],
    ids=json.dumps,
)
def test_an_image_that_can_be_found_is_taken(values: Values) -> None:
    assert "kind: Deployment" in manifest(merged(NOWHERE, values))


def test_secrets_to_pull_with_are_given_by_name_or_as_in_a_pod() -> None:
    """The same list in both forms makes the same objects, a name given twice counts once."""

    def made(*secrets: object) -> str:
        return comparable(
            {**EVERYTHING, "imagePullSecrets": secrets, "worker": {"imagePullSecrets": secrets}}
        )

    assert made("a", "b") == made({"name": "a"}, {"name": "b"}) == made("a", {"name": "b"}, {"name": "a"})


def test_values_that_exclude_each_other_are_refused_with_what_to_do() -> None:
    with pytest.raises(Rejected, match=r"needs leaderElection\.enabled"):
        manifest({"replicas": 2, "leaderElection": {"enabled": False}})
    with pytest.raises(Rejected, match="maxmemory-policy is set by the chart"):
        manifest({"redis": {"config": {"maxmemory-policy": "allkeys-lru"}}})
    with pytest.raises(Rejected, match="enable one"):
        manifest({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}})


def test_the_operators_rights_are_given_to_no_account_that_others_have_by_default() -> None:
    """Without a name it would be `default`, which every pod of the namespace has that asks for none."""
    with pytest.raises(Rejected, match=r"serviceAccount\.name: name the ServiceAccount"):
        manifest({"serviceAccount": {"create": False}})
    assert 'name: "theirs"' in manifest({"serviceAccount": {"create": False, "name": "theirs"}})


def test_a_kubernetes_that_would_drop_what_pods_and_policies_need_is_refused() -> None:
    manifest({}, "--kube-version=1.30.0")
    with pytest.raises(Rejected, match="kubeVersion"):
        manifest({}, "--kube-version=1.29.9")

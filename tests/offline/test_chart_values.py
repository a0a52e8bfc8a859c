"""Every value of the chart does something, and one that cannot is refused by name. A real Helm, and no cluster."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.offline.chart import CHART, EVERYTHING, Rejected, manifest, merged, nested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.offline.chart import Values


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


DISTINCT: Values = {
    "reconcile.concurrency": 71,
    "reconcile.resyncSeconds": 77771,
    "terminationGracePeriodSeconds": 3571,
    "revisionHistoryLimit": 97,
    "service.port": 61234,
    "test.timeoutSeconds": 3411,
    "podMonitor.interval": "71s",
    "podMonitor.scrapeTimeout": "72s",
    "serviceMonitor.interval": "73s",
    "serviceMonitor.scrapeTimeout": "74s",
    "dnsConfig": {"searches": ["shop.example"]},
    "livenessProbe": {"periodSeconds": 7172},
    "readinessProbe": {"periodSeconds": 7173},
    "networkPolicy.apiServerPorts": [7174],
    "podDisruptionBudget.maxUnavailable": "77%",
    "redis.config": {"timeout": 7175},
    "redis.users": {"delayq-orders": f"on #{'a' * 64} ~delayq:{{orders:* +get"},
    "redis.queues": [{"name": "mark-queue"}],
    "redis.maxMemory": "71mb",
    "redis.persistence.size": "71Gi",
}
"""Values that are found again as they are."""
MARKS = {path: f"mark-{number:03}x" for number, (path, _) in enumerate(leaves(SCHEMA))}
MARKED = merged(
    *(nested(path, value) for path, schema in leaves(SCHEMA) if (value := marked(schema, MARKS[path]))),
    *(nested(path, value) for path, value in DISTINCT.items()),
)
OTHER_MONITOR = {"serviceMonitor": {"enabled": False}, "podMonitor": {"enabled": True}}


def innermost(value: Any) -> str:  # noqa: ANN401 -- any value
    while isinstance(value, dict | list):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return str(value)


def comparable(values: Values) -> str:
    """What is rendered, as text; passwords are random."""
    return re.sub(r"password: \S+|#[0-9a-f]{64}|delayq\.dev/config: \S+", "", manifest(values))


def test_every_value_that_can_hold_a_mark_passes_it_on() -> None:
    made = manifest(merged(EVERYTHING, MARKED)) + manifest(merged(EVERYTHING, MARKED, OTHER_MONITOR))
    given = json.dumps(MARKED)
    marks = {path: mark for path, mark in MARKS.items() if mark in given}
    marks |= {path: innermost(value) for path, value in DISTINCT.items()}
    assert [path for path, mark in marks.items() if mark not in made] == []
    without = comparable(EVERYTHING)
    assert [
        path for path, mark in marks.items() if re.search(rf"(?<!\d){re.escape(mark)}(?!\d)", without)
    ] == []


CHANGES: Values = {
    path: True
    for path, schema in leaves(SCHEMA)
    if marked(schema, "mark") is None
    and path not in {"enabled", "localImages", *DISTINCT}  # two make no object
} | {
    **dict.fromkeys(("image.digest", "worker.image.digest", "redis.image.digest"), "sha256:" + "a" * 64),
    **dict.fromkeys(("image.pullPolicy", "worker.image.pullPolicy", "redis.image.pullPolicy"), "Always"),
    "prometheusRule.disabled": ["DelayQueueOperatorWorkQueue"],
    "log.level": "debug",
    "log.format": "console",
    "policy.podSecurity": "privileged",
    "replicas": 10,
}


def test_every_other_value_changes_what_is_made() -> None:
    assert [path for path in CHANGES if not changes(path)] == []


def changes(path: str) -> bool:
    base = merged(EVERYTHING, OTHER_MONITOR) if path.startswith("podMonitor") else EVERYTHING
    base = {"replicas": 1} if path == "leaderElection.enabled" else base  # two need it
    base = merged(base, {"serviceAccount": {"name": "theirs"}})  # what is not created needs one
    value = path not in toggled_on(base) if CHANGES[path] is True else CHANGES[path]
    return comparable(merged(base, nested(path, value))) != comparable(base)


def toggled_on(values: Values) -> set[str]:
    """Paths that are true, in these values or by default."""
    all_values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    return {path for path, _ in leaves(SCHEMA) if at(all_values, path) is True}


def at(values: Values, path: str) -> Any:  # noqa: ANN401 -- any value
    found: Any = values
    for key in path.split("."):
        found = found[key]
    return found


REFUSED: Values = {
    "replica": 2,
    "replicas": 0,
    "image": {"digest": "latest", "pullPolicy": "Sometimes"},
    "imagePullSecrets": [{"secret": "x"}],
    "watchNamespaces": ["Shop", "shop", "shop"],
    "podLabels": {"a": 1},
    "networkPolicy": {"apiServerPorts": []},
    "redis": {"replicas": 3, "config": {"Timeout": 7}},
}
"""One value against each kind of rule of the schema."""
COMPLAINTS = (
    *(
        "'': additional properties 'replica'",
        "'/replicas': minimum",
        "'/image/digest'",
        "'/image/pullPolicy'",
    ),
    *("'/imagePullSecrets/0'", "'/watchNamespaces/0'", "'/watchNamespaces': items at 1 and 2 are equal"),
    *("'/podLabels/a'", "'/networkPolicy/apiServerPorts'", "'/redis': additional properties 'replicas'"),
    "'/redis/config'",
)


def test_values_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(Rejected) as refused:
        manifest(REFUSED)
    assert [each for each in COMPLAINTS if f"at {each}" not in str(refused.value)] == []


FULL = {"repository": "ghcr.io/shop/delayq"}


def test_an_image_that_no_registry_serves_is_refused_with_what_to_do() -> None:
    """A name without a registry is looked for on Docker Hub, where delayq is not."""
    no_digest = {"image": {"digest": "sha256:" + "a" * 64}}
    for values, path in (({}, "image"), ({"image": FULL}, "worker.image"), (no_digest, "image")):
        with pytest.raises(Rejected) as refused:
            manifest({"localImages": False, **values})
        said = str(refused.value)
        assert f"imageRegistry is empty and {path}.repository is delayq-" in said
        for part in ("docs/how-to/images.md", "--set imageRegistry=", "--set localImages=true"):
            assert part in said
    assert (CHART.parents[1] / "docs" / "how-to" / "images.md").exists()
    for found in ({"imageRegistry": "registry.example.com"}, {"image": FULL, "worker": {"image": FULL}}):
        manifest({"localImages": False, **found})


def test_secrets_to_pull_with_are_given_by_name_or_as_in_a_pod() -> None:
    """The same list in both forms makes the same objects, a name given twice counts once."""

    def made(*secrets: object) -> str:
        return comparable(
            {**EVERYTHING, "imagePullSecrets": secrets, "worker": {"imagePullSecrets": secrets}}
        )

    assert made("a", "b") == made("a", {"name": "b"}, {"name": "a"})


EXCLUSIVE: dict[str, Values] = {
    "more than one user delayq-a": {"redis": {"queues": [{"name": "a"}, {"name": "a", "namespace": "b"}]}},
    r"needs leaderElection\.enabled": {"replicas": 2, "leaderElection": {"enabled": False}},
    "maxmemory-policy is set by the chart": {"redis": {"config": {"maxmemory-policy": "allkeys-lru"}}},
    "enable one": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    # Without a name it would be `default`, which every pod of the namespace has that asks for none.
    r"serviceAccount\.name: name the ServiceAccount": {"serviceAccount": {"create": False}},
}


def test_values_that_exclude_each_other_are_refused_with_what_to_do() -> None:
    for words, values in EXCLUSIVE.items():
        with pytest.raises(Rejected, match=words):
            manifest(values)
    assert 'name: "theirs"' in manifest({"serviceAccount": {"create": False, "name": "theirs"}})


def test_a_kubernetes_that_would_drop_what_pods_and_policies_need_is_refused() -> None:
    manifest({}, "--kube-version=1.30.0")
    with pytest.raises(Rejected, match="kubeVersion"):
        manifest({}, "--kube-version=1.29.9")

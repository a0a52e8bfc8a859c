"""Pod templates as users write them, zeroes, nulls, odd spellings and all, that the API server takes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]

WORDS = st.sampled_from(["a", "b-1", "x.y"])
FLAGS = (True, False)
Values = st.SearchStrategy[Any] | tuple[Any, ...]


def some(**optional: Values) -> st.SearchStrategy[Object]:
    """A mapping with any of these fields, each with one of its values."""
    strategies = {
        field: st.sampled_from(values) if isinstance(values, tuple) else values
        for field, values in optional.items()
    }
    return st.fixed_dictionaries({}, optional=strategies)


def with_name(name: str, fields: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return fields.map(lambda found: {"name": name, **found})


# Limits have to reach what we request: at most 100m and 128Mi.
LIMITS = some(
    cpu=("100m", "0.1", "1", 1, "1.5", "2000m", "1e3"),
    memory=("134217728", "128Mi", "0.25Gi", "1.5Gi", "500M", "1e9", "12E"),
)
RESOURCES = st.sampled_from([None, {}, {"limits": None}]) | some(requests=({},), limits=LIMITS | st.none())
PROBES: tuple[Object | None, ...] = (
    None,
    {"initialDelaySeconds": 0, "periodSeconds": 0},
    {"exec": {"command": ["true"]}},
    {"tcpSocket": {"port": 8080}, "periodSeconds": 7},
    {"httpGet": {"path": "", "port": "metrics"}},
    {"grpc": {"port": 9000}},
)
SOURCES: tuple[Object, ...] = (
    {"value": ""},
    {"value": "1000m"},
    {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
    {"valueFrom": {"secretKeyRef": {"name": "app", "key": "k", "optional": False}}},
)
ENV = st.lists(st.sampled_from(SOURCES), max_size=3).map(
    lambda found: [{"name": f"V{at}", **each} for at, each in enumerate(found)]
)
SECURITY = some(
    runAsUser=(0, 1000),
    runAsNonRoot=FLAGS,
    readOnlyRootFilesystem=FLAGS,
    privileged=(False,),
    capabilities=(None, {}, {"add": ["NET_BIND_SERVICE"]}, {"drop": []}),
)
CONTAINER = some(
    env=ENV | st.none(),
    envFrom=([], [{"prefix": "", "configMapRef": {"name": "app", "optional": True}}]),
    resources=RESOURCES,
    startupProbe=PROBES,
    readinessProbe=PROBES,
    livenessProbe=tuple(probe and {**probe, "terminationGracePeriodSeconds": 5} for probe in PROBES),
    tty=FLAGS,
    workingDir=("", "/srv"),
    imagePullPolicy=("Always", "IfNotPresent"),
    lifecycle=(None, {"preStop": {"sleep": {"seconds": 1}}}),
    securityContext=SECURITY | st.none(),
)
PORTS = some(
    ports=(
        [],
        [{"containerPort": 9000, "hostPort": 0}],
        [{"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 53, "name": "dns-tcp"}],
    )
)
OURS = st.tuples(CONTAINER, PORTS).map(lambda parts: {**parts[0], **parts[1]})
SIDECAR = with_name("sidecar", OURS).map(lambda found: {"image": "sidecar:1", **_plain(found)})
NATIVE = with_name("native", CONTAINER).map(
    lambda found: {"image": "sidecar:1", **_plain(found), "restartPolicy": "Always"}
)
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "",
    "resources": {"requests": {"storage": "1024Mi"}},
}
VOLUMES: tuple[Object, ...] = (
    {"name": "tmp", "emptyDir": {"sizeLimit": "0.5Gi"}},
    {"name": "tmp", "emptyDir": {"medium": ""}},
    {"name": "a", "emptyDir": {}},
    {"name": "b", "configMap": {"name": "app", "optional": False}},
    {"name": "c", "secret": {"secretName": "app", "defaultMode": 0, "items": []}},
    {"name": "d", "hostPath": {"path": "/srv", "type": ""}},
    {"name": "e", "projected": {"sources": [{"downwardAPI": {}}, {"secret": {"name": "app"}}]}},
    {"name": "f", "persistentVolumeClaim": {"claimName": "x", "readOnly": False}},
    {"name": "g", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}},
)
LABELS = st.dictionaries(WORDS, st.sampled_from(["", "v"]), max_size=2)
POD: dict[str, Values] = {
    "initContainers": st.lists(NATIVE, max_size=1),
    "volumes": st.lists(st.sampled_from(VOLUMES), max_size=4, unique_by=lambda volume: str(volume["name"])),
    "tolerations": (
        [],
        [{"operator": "Exists"}],
        [{"key": "k", "effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 0}],
    ),
    "nodeSelector": LABELS | st.none(),
    "affinity": (None, {}, {"nodeAffinity": {}}),
    "topologySpreadConstraints": (None, []),
    "hostNetwork": (False,),
    "shareProcessNamespace": FLAGS,
    "hostAliases": ([], [{"ip": "10.0.0.1", "hostnames": ["x"]}]),
    "imagePullSecrets": ([], [{"name": "registry"}]),
    "priorityClassName": ("", "high"),
    "schedulerName": ("other",),
    "serviceAccountName": ("own",),
    "automountServiceAccountToken": FLAGS,
    "enableServiceLinks": FLAGS,
    "dnsConfig": ({}, {"options": [{"name": "ndots", "value": "1"}], "nameservers": []}),
    "runtimeClassName": ("gvisor",),
    "securityContext": (
        None,
        {},
        {"runAsUser": 0, "runAsNonRoot": False},
        {"fsGroup": 0, "sysctls": []},
        {"seccompProfile": None},
    ),
}


def _plain(container: Object) -> Object:
    """A container that is only the user's cannot leave out half of a probe, nor name a port of ours."""
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    kept = {field: value for field, value in container.items() if field not in probes}
    return kept if kept.get("resources") else {**kept, "resources": {}}


def templates(component: str) -> st.SearchStrategy[Object]:
    """Templates for one component's pods."""
    # A reaper is not asked whether it is ready: half a readiness probe would stay half.
    ours = OURS if component != "reaper" else OURS.map(lambda found: {**found, "readinessProbe": None})
    containers = st.tuples(with_name(component, ours), st.lists(SIDECAR, max_size=1)).map(
        lambda found: [found[0], *found[1]]
    )
    return some(
        metadata=some(labels=LABELS, annotations=LABELS | st.none()), spec=some(containers=containers, **POD)
    )

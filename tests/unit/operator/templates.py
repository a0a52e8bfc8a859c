"""Pod templates as users write them, zeroes, nulls, odd spellings and all, that the API server takes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]

WORDS = st.sampled_from(["a", "b-1", "x.y"])
FLAGS = st.booleans()
NEVER = st.sampled_from([False])


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """A mapping with any of these fields."""
    return st.fixed_dictionaries({}, optional=optional)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy | st.none()


def with_name(name: str, fields: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return fields.map(lambda found: {"name": name, **found})


# Limits have to reach what we request: at most 100m and 128Mi.
AMOUNTS = some(
    cpu=st.sampled_from(["100m", "0.1", "1", 1, "1.5", "2000m", "1e3"]),
    memory=st.sampled_from(["134217728", "128Mi", "0.25Gi", "1.5Gi", "500M", "1e9", "12E"]),
)
RESOURCES = maybe(st.sampled_from([{}, {"limits": None}]) | some(requests=st.just({}), limits=maybe(AMOUNTS)))

PROBES = st.sampled_from(
    [
        None,
        {"initialDelaySeconds": 0, "periodSeconds": 0},
        {"exec": {"command": ["true"]}},
        {"tcpSocket": {"port": 8080}, "periodSeconds": 7},
        {"httpGet": {"path": "", "port": "metrics"}},
        {"grpc": {"port": 9000}},
    ]
)
SOURCES: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"value": ""},
        {"value": "1000m"},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"valueFrom": {"secretKeyRef": {"name": "app", "key": "k", "optional": False}}},
        {"valueFrom": {"configMapKeyRef": {"name": "app", "key": "k"}}},
    ]
)
ENV = st.lists(
    SOURCES,
    max_size=3,
).map(lambda found: [{"name": f"V{at}", **each} for at, each in enumerate(found)])

CONTAINER = some(
    env=maybe(ENV),
    envFrom=st.sampled_from([[], [{"prefix": "", "configMapRef": {"name": "app", "optional": True}}]]),
    resources=RESOURCES,
    startupProbe=PROBES,
    readinessProbe=PROBES,
    livenessProbe=PROBES.map(lambda probe: probe and {**probe, "terminationGracePeriodSeconds": 5}),
    tty=FLAGS,
    stdin=FLAGS,
    workingDir=st.sampled_from(["", "/srv"]),
    imagePullPolicy=st.sampled_from(["Always", "IfNotPresent"]),
    terminationMessagePolicy=st.just("FallbackToLogsOnError"),
    lifecycle=st.sampled_from([None, {"preStop": {"sleep": {"seconds": 1}}}]),
    securityContext=maybe(
        some(
            runAsUser=st.sampled_from([0, 1000]),
            runAsNonRoot=FLAGS,
            readOnlyRootFilesystem=FLAGS,
            privileged=NEVER,
            capabilities=st.sampled_from([None, {}, {"add": ["NET_BIND_SERVICE"]}, {"drop": []}]),
        )
    ),
)
PORTS = st.sampled_from(
    [
        [],
        [{"containerPort": 9000, "hostPort": 0}],
        [{"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 53, "name": "dns-tcp"}],
    ]
)
OURS = st.tuples(CONTAINER, some(ports=PORTS)).map(lambda parts: {**parts[0], **parts[1]})
SIDECAR = with_name("sidecar", OURS).map(lambda found: {"image": "sidecar:1", **_plain(found)})
NATIVE = with_name("native", CONTAINER).map(
    lambda found: {"image": "sidecar:1", **_plain(found), "restartPolicy": "Always"}
)

VOLUME: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"name": "tmp", "emptyDir": {"sizeLimit": "0.5Gi"}},
        {"name": "tmp", "emptyDir": {"medium": ""}},
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "app", "optional": False}},
        {"name": "c", "secret": {"secretName": "app", "defaultMode": 0, "items": []}},
        {"name": "d", "hostPath": {"path": "/srv", "type": ""}},
        {"name": "e", "projected": {"sources": [{"downwardAPI": {}}, {"secret": {"name": "app"}}]}},
        {"name": "f", "persistentVolumeClaim": {"claimName": "x", "readOnly": False}},
        {
            "name": "g",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "",
                        "resources": {"requests": {"storage": "1024Mi"}},
                    }
                }
            },
        },
    ]
)
VOLUMES = st.lists(
    VOLUME,
    max_size=4,
    unique_by=lambda volume: str(volume["name"]),
)
TOLERATIONS = st.sampled_from(
    [
        [],
        [{"operator": "Exists"}],
        [{"key": "k", "effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 0}],
    ]
)
LABELS = st.dictionaries(WORDS, st.sampled_from(["", "v"]), max_size=2)


def _plain(container: Object) -> Object:
    """A container that is only the user's cannot leave out half of a probe, nor name a port of ours."""
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    kept = {field: value for field, value in container.items() if field not in probes}
    return kept if kept.get("resources") else {**kept, "resources": {}}


def templates(component: str) -> st.SearchStrategy[Object]:
    """Templates for one component's pods."""
    metadata = some(labels=LABELS, annotations=maybe(LABELS))
    # A reaper is not asked whether it is ready: half a readiness probe would stay half.
    ours = OURS if component != "reaper" else OURS.map(lambda found: {**found, "readinessProbe": None})
    spec = some(
        containers=st.tuples(with_name(component, ours), st.lists(SIDECAR, max_size=1)).map(
            lambda found: [found[0], *found[1]]
        ),
        initContainers=st.lists(NATIVE, max_size=1),
        volumes=VOLUMES,
        tolerations=TOLERATIONS,
        nodeSelector=maybe(LABELS),
        affinity=st.sampled_from([None, {}, {"nodeAffinity": {}}]),
        topologySpreadConstraints=maybe(st.just([])),
        hostNetwork=NEVER,
        hostPID=NEVER,
        shareProcessNamespace=FLAGS,
        hostAliases=st.sampled_from([[], [{"ip": "10.0.0.1", "hostnames": ["x"]}]]),
        imagePullSecrets=st.sampled_from([[], [{"name": "registry"}]]),
        priorityClassName=st.sampled_from(["", "high"]),
        schedulerName=st.just("other"),
        serviceAccountName=st.just("own"),
        automountServiceAccountToken=FLAGS,
        enableServiceLinks=FLAGS,
        dnsPolicy=st.just("Default"),
        dnsConfig=st.sampled_from([{}, {"options": [{"name": "ndots", "value": "1"}], "nameservers": []}]),
        runtimeClassName=st.just("gvisor"),
        securityContext=st.sampled_from(
            [
                None,
                {},
                {"runAsUser": 0, "runAsNonRoot": False},
                {"fsGroup": 0, "sysctls": []},
                {"seccompProfile": None},
            ]
        ),
    )
    return st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": spec})

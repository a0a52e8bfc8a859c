"""What counts as a difference between an object as it is wanted and as the API server has it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from delayq_operator.base import names
from delayq_operator.base.quantity import same_quantity
from delayq_operator.desired import desired
from delayq_operator.reconcile.drift import differences, differs, foreign, stamped
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import DOCUMENTS, SETTING, facts, queue

Object = dict[str, Any]


def wanted(**spec: object) -> Object:
    return {"kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


DIFFERENT: list[tuple[object, object, str]] = [
    ({"a": {"b/c": "1"}}, {"a": {}}, "spec.a[b/c]"),
    ({"emptyDir": {}}, {}, "spec.emptyDir"),
    ({"replicas": 0}, {"replicas": 3}, "spec.replicas"),
    ({"replicas": 1}, {"replicas": True}, "spec.replicas"),
    ({"value": "1000m"}, {"value": "1"}, "spec.value"),
    ({"labels": {"a": ""}}, {"labels": {}}, "spec.labels.a"),
    ({"labels": {"priority": "x"}}, {}, "spec.labels"),
    ({"automountServiceAccountToken": False}, {}, "spec.automountServiceAccountToken"),
    ({"limits": {"cpu": "0"}}, {"limits": {}}, "spec.limits.cpu"),
    ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a"}, {"key": "b"}]}, "spec.tolerations"),
    ({"tolerations": []}, {"tolerations": "none"}, "spec.tolerations"),
    (
        {"ports": [{"port": 1, "protocol": "UDP"}]},
        {"ports": [{"port": 1, "protocol": "TCP"}]},
        "spec.ports[1/UDP]",
    ),
]


@pytest.mark.parametrize(("ours", "theirs", "path"), DIFFERENT, ids=str)
def test_a_difference_is_named_by_its_path(ours: Object, theirs: Object, path: str) -> None:
    """What the API server makes of a field is none: tests/cluster/test_desired.py."""
    assert [*differences(wanted(**ours), wanted(**theirs))] == [path]


def test_every_difference_is_named() -> None:
    """The event Repaired has them all: a suspended reaper is not to be missed behind an edited schedule."""
    labels = {"metadata": {"name": "a", "labels": {"x": "1"}}}
    ours = wanted(suspend=False, schedule="* * * * *", ports=[{"port": 1}, {"port": 2}]) | labels
    theirs = wanted(suspend=True, schedule="@yearly", ports=[{"port": 1, "name": "a"}])
    paths = ["metadata.labels", "spec.suspend", "spec.schedule", "spec.ports[2/TCP]"]
    assert sorted(differences(ours, theirs)) == sorted(paths)


def test_a_field_that_is_gone_from_what_is_wanted_is_noticed_by_the_fingerprint() -> None:
    live = stamped(wanted(a=1, b=2))
    assert [*differences(stamped(wanted(a=1)), live)] == [f"metadata.annotations[{names.APPLIED}]"]
    assert not differs(wanted(a=1), live), "without a fingerprint it cannot be known"


def children() -> list[Object]:
    queues = [queue(text) for text in DOCUMENTS.values()]
    return [stamped(each) for of in queues for each in desired(of, SETTING, facts(of))]


def _leaves(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, item in inner for leaf in _leaves(item, (*path, key))]
    return found or [path]


@given(
    st.sampled_from(children()).flatmap(lambda body: st.tuples(st.just(body), st.sampled_from(_leaves(body))))
)
def test_a_change_of_any_leaf_is_a_difference(drawn: tuple[Object, tuple[Any, ...]]) -> None:
    body, (*path, last) = drawn
    live = deepcopy(body)
    at: Any = live
    for key in path:
        at = at[key]
    at[last] = "changed" if at[last] != "changed" else "again"
    kinds = (["apiVersion"], ["kind"])
    assert differs(body, live) == ([*path, last] not in kinds)
    assert not differs(body, deepcopy(body))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *(("1", "1000m", True), ("0.1", "100m", True), ("1Gi", "1024Mi", True), ("1e3", "1k", True)),
        *(("1E", "1e18", True), ("128Mi", "134217728", True), ("5n", "0.005u", True), (".5", "500m", True)),
        *(("1G", "1Gi", False), ("1", "2", False), ("1m", "1M", False), ("x", "y", False), ("x", "x", True)),
        *(("", "0", False), ("NaN", "1", False), ("-1", "-1000m", True)),
    ],
)
def test_quantities_are_compared_by_amount(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    assert same_quantity(one, other) is same
    assert same_quantity(other, one) is same


def container(**fields: object) -> Object:
    return {"containers": [fields]}


def security(**fields: object) -> Object:
    return {"securityContext": fields}


UNCONFINED = {"type": "Unconfined"}
OURS = "of container worker"
PRIVILEGES: list[tuple[Object, str]] = [
    *[({field: True}, field) for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")],
    (security(runAsUser=0), "runAsUser: 0"),
    (security(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "1"}]), "sysctls"),
    (security(windowsOptions={"hostProcess": True}), "windowsOptions.hostProcess"),
    ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "hostPath volume node"),
    ({"volumes": [{"name": "share", "nfs": {"server": "a", "path": "/"}}]}, "nfs volume share"),
    (container(args=["--config", "/mine"]), f"args {OURS}"),
    (container(lifecycle={"preStop": {"exec": {"command": ["mine"]}}}), f"lifecycle.preStop.exec {OURS}"),
    (container(**security(privileged=True)), f"privileged {OURS}"),
    (container(**security(capabilities={"add": ["SYS_ADMIN"]})), f"capabilities.add {OURS}"),
    (container(**security(procMount="Unmasked")), f'procMount: "Unmasked" {OURS}'),
    (container(**security(runAsUser=0)), f"runAsUser: 0 {OURS}"),
    (container(**security(runAsNonRoot=False)), f"runAsNonRoot: false {OURS}"),
    (container(**security(seccompProfile=UNCONFINED)), f'seccompProfile.type: "Unconfined" {OURS}'),
    (container(**security(appArmorProfile=UNCONFINED)), f'appArmorProfile.type: "Unconfined" {OURS}'),
    (container(**security(seLinuxOptions={"type": "spc_t"})), f"seLinuxOptions {OURS}"),
    (container(ports=[{"containerPort": 9, "hostPort": 80}]), f"hostPort 80 {OURS}"),
    # Harmless.
    ({"hostNetwork": False, "nodeSelector": {"disk": "ssd"}, "dnsPolicy": "ClusterFirst"}, ""),
    (security(runAsUser=1000, runAsNonRoot=True, fsGroup=0), ""),
    ({"volumes": [{"name": "more", "secret": {"secretName": "a"}}, {"name": "cache", "emptyDir": {}}]}, ""),
    (container(env=[{"name": "A", "value": "b"}], args=[], ports=[{"containerPort": 9}]), ""),
]


def worker_with(extra: Object, wanted: Object | None = None) -> tuple[Object, Object]:
    """A worker Deployment whose template asks for `wanted`, and as it is with `extra` that another client added."""
    of = queue(worker={"template": {"spec": wanted or {}}})
    made = {(each["kind"], each["metadata"]["name"]): each for each in desired(of, SETTING, facts(of))}
    body = made["Deployment", names.worker("orders")]
    live = deepcopy(body)
    add(live["spec"]["template"]["spec"], extra)
    return body, live


def add(to: Object, extra: Object) -> None:
    """Containers are met one by one, other lists grow."""
    for key, value in extra.items():
        if key == "containers":
            for theirs, more in zip(to[key], value, strict=False):
                add(theirs, more)
        elif isinstance(value, dict) and isinstance(to.get(key), dict):
            add(to[key], value)
        else:
            to[key] = [*to.get(key, ()), *value] if isinstance(value, list) else value


@pytest.mark.parametrize(("extra", "reported"), PRIVILEGES)
def test_a_privilege_that_another_client_adds_is_reported(extra: Object, reported: str) -> None:
    body, live = worker_with(extra)
    assert foreign(body, live) == ([reported] if reported else [])
    assert not differs(body, live) or not reported


def test_containers_that_the_spec_does_not_have_are_named() -> None:
    """One look at each: once for each container took seconds with some thousand of them."""
    body, live = worker_with({"initContainers": [{"name": "setup"}]})
    miners = [f"miner-{number}" for number in range(5_000)]
    live["spec"]["template"]["spec"]["containers"] += [{"name": name} for name in miners]
    assert foreign(body, live) == [*(f"container {name}" for name in miners), "init container setup"]


def test_what_the_template_asks_for_is_not_foreign() -> None:
    port = {"name": "debug", "containerPort": 9000, "hostPort": 9000}
    sidecar = {"name": "proxy", "image": "proxy", "securityContext": {"privileged": True}, "args": ["x"]}
    host = [{"name": "node", "hostPath": {"path": "/"}}]
    wanted = {"containers": [{"name": "worker", "ports": [port]}, sidecar], "volumes": host}
    assert foreign(*worker_with({}, wanted)) == []
    escalating = {"containers": [{}, security(allowPrivilegeEscalation=True)]}
    assert foreign(*worker_with(escalating, wanted)) == ["allowPrivilegeEscalation of container proxy"]
    # In the host's network the API server says hostPort for every port.
    host_port = container(ports=[{"containerPort": 8080, "hostPort": 8080}])
    assert foreign(*worker_with(host_port, {"hostNetwork": True})) == []

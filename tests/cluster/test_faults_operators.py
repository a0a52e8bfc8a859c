"""Two operators at once, with a Lease and without; leaders that are killed, paused, or ended by a signal."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.kube.lease import LEASE_SECONDS

from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import COMMAND, Operator
from tests.cluster.plugin import Plugin
from tests.cluster.world import World, running
from tests.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.control_plane import ControlPlane

ACCOUNT: Final = "delayq-operator"
OTHER: Final = "other"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/delayq-operator"
LEADER: Final = "delayq_operator_leader"
WRITING: Final = {"create", "update", "patch", "delete"}
LEADERSHIP_LOST: Final = 5
STOP_SECONDS: Final = 3.0
FEW_SECONDS: Final = 4.0  # a standby asks every second, and lists everything before it says that it leads


@pytest.fixture
def others(cluster: ControlPlane, kubeconfig: Path, namespace: str) -> Path:  # noqa: ARG001  the roles are there
    """A kubeconfig with the same rights and another name, to tell two operators apart in the audit log."""
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": OTHER}})
    for binding in cluster.rest.items(RBAC.format(namespace)):
        name = binding["metadata"]["name"]
        subjects = [{"kind": "ServiceAccount", "name": OTHER, "namespace": namespace}]
        copy = {"metadata": {"name": f"{OTHER}-{name}"}, "roleRef": binding["roleRef"], "subjects": subjects}
        cluster.rest.create(RBAC.format(namespace), copy)
    return cluster.kubeconfig_for(namespace, OTHER)


@pytest.fixture
def leader(kubeconfig: Path, namespace: str) -> Iterator[Operator]:
    with running(Operator.fork(kubeconfig, namespace)) as operator:
        yield operator


@pytest.fixture
def standby(leader: Operator, others: Path, namespace: str) -> Iterator[Operator]:  # noqa: ARG001  it came first
    operator = Operator.fork(others, namespace)
    operator.process.wait_http(f"http://127.0.0.1:{operator.port}/readyz")
    yield operator
    operator.process.stop()


@pytest.fixture
def world(cluster: ControlPlane, leader: Operator, namespace: str) -> World:
    return World(cluster, leader, namespace)


def leads(operator: Operator) -> bool:
    return operator.metric(LEADER) == 1


def written(plane: ControlPlane, namespace: str, account: str, mark: int = 0) -> list[Any]:
    """What an account wrote since then."""
    user = f"system:serviceaccount:{namespace}:{account}"
    return [event for event in plane.audit_events(mark, user=user) if event.verb in WRITING]


def applied(world: World, count: int) -> bool:
    return bool(world.get("deployments", "orders-worker")["spec"]["replicas"] == count)


def test_only_the_leader_writes_and_a_standby_takes_over(
    control_plane: ControlPlane, world: World, *, leader: Operator, standby: Operator, kubeconfig: Path
) -> None:
    """When the Lease has run out, or at once when it is handed over."""
    world.start()
    world.edit(worker={"replicas": 2})
    eventually(lambda: applied(world, 2))
    assert (leads(leader), leads(standby)) == (True, False)
    assert written(control_plane, world.namespace, OTHER) == []

    # One that slept past its Lease writes nothing when it wakes, and ends.
    leader.process.pause()
    world.delete("deployments", "orders-scanner")
    world.edit(worker={"replicas": 3})
    eventually(lambda: applied(world, 3), what="the standby works", timeout_s=LEASE_SECONDS + FEW_SECONDS)
    assert leads(standby)
    mark = control_plane.audit_mark()
    world.delete("cronjobs", "orders-reaper")  # so that the one that wakes has something to repair, too
    leader.process.resume()
    assert leader.process.wait() == LEADERSHIP_LOST
    assert written(control_plane, world.namespace, ACCOUNT, mark) == []
    eventually(lambda: world.there("cronjobs", "orders-reaper"))

    # One that gets SIGTERM hands it over within 3 s.
    third = Operator.fork(kubeconfig, world.namespace)
    try:
        third.process.wait_http(f"http://127.0.0.1:{third.port}/readyz")
        standby.process.send(signal.SIGTERM)
        world.edit(worker={"replicas": 4})
        eventually(lambda: leads(third), timeout_s=STOP_SECONDS)
        assert standby.process.wait(timeout_s=lenient(STOP_SECONDS)) == 0
        eventually(lambda: applied(world, 4))
    finally:
        third.process.stop()
    reported = f"The operator does not run: it does not hold Lease {world.namespace}/delayq-operator."
    status = Plugin(control_plane, world.namespace).out("status", "orders")
    assert reported in status, "conditions stay as they were: how old may they be?"


def test_it_ends_soon_after_a_signal_at_any_time(
    control_plane: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Exit code 0 within 3 s and the Lease given back, at its start and in the middle of work.

    Also while the API server hangs, but for the Lease.
    """
    draw, longest = random.Random(4), 0.0
    for number in range(2):
        operator = Operator.fork(kubeconfig, namespace)
        try:
            if number:
                operator.wait_ready()
            world = World(control_plane, operator, namespace)
            for more in range(4):
                world.create(f"queue-{number}-{more}")
            time.sleep(draw.uniform(0, 1.0))  # any moment will do
            longest = max(longest, signalled(operator))
        finally:
            operator.process.stop()
        holder = control_plane.rest.get(LEASE.format(namespace))["spec"].get("holderIdentity", "")
        assert holder == "", operator.process.output
    operator = Operator.fork(kubeconfig, namespace).wait_ready()
    control_plane.api_server.pause()
    longest = max(longest, signalled(operator))
    print(f"it took at most {longest:.2f} s to end")


def test_it_ends_on_a_signal_before_its_start(kubeconfig: Path, namespace: str) -> None:
    """As soon as it hears signals at all, which is long before it has imported everything."""
    for pause in (0.0, 0.3):
        process = Process.start(
            *(COMMAND, "--worker-image=delayq-worker:test", "--port=0"),
            *("--namespace", namespace, "--lease-namespace", namespace),
            env={"KUBECONFIG": str(kubeconfig), "POD_NAME": ""},
        )
        try:
            eventually(partial(hears, process, signal.SIGTERM), every_s=0.005)
            time.sleep(pause)
            process.send(signal.SIGTERM)
            assert process.wait(timeout_s=lenient(STOP_SECONDS)) == 0, process.output
        finally:
            process.stop()


def hears(process: Process, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def signalled(operator: Operator) -> float:
    """How long it took to end, with 0."""
    told_at = time.monotonic()
    operator.process.send(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        code = operator.process.wait(timeout_s=lenient(STOP_SECONDS))
        assert code == 0, operator.process.output
        return time.monotonic() - told_at
    raise AssertionError(f"not within {lenient(STOP_SECONDS)} s:\n{operator.process.output}")


def test_the_newer_of_two_installations_stops_writing(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Two releases over one namespace do not overwrite each other: the older one serves, and reports the other."""
    other = ("--lease-name=other", "--worker-image=other:test")
    with ExitStack() as stack:
        first = stack.enter_context(running(Operator.fork(kubeconfig, namespace)))
        world = World(cluster, first, namespace)
        world.start()
        second = stack.enter_context(running(Operator.fork(cluster.kubeconfig, namespace, *other)))
        second.process.wait_line(rf"queue_yielded queue={namespace}/orders other={namespace}/delayq-operator")
        reported = world.until("Degraded", "True", "OperatorConflict")["message"]
        assert f"{namespace}/other" in reported
        loads = [world.get("deployments", f"orders-{kind}") for kind in ("worker", "scanner")]
        assert [load["metadata"]["generation"] for load in loads] == [1, 1]
        world.edit(worker={"replicas": 3})
        eventually(lambda: applied(world, 3))
        world.until("Accepted", "True")
        pod = world.get("deployments", "orders-worker")["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "delayq-worker:test"
        assert not world.events("Repaired")[3:]


def in_pod(cluster: ControlPlane, namespace: str, name: str) -> dict[str, str]:
    """The environment of an operator in a pod, which owns the Lease while that operator leads."""
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    pod = cluster.rest.create(f"/api/v1/namespaces/{namespace}/pods", body)
    return {"POD_NAME": name, "POD_NAMESPACE": namespace, "POD_UID": pod["metadata"]["uid"]}


def test_a_standby_in_a_pod_takes_the_lease_of_a_pod_that_hangs_and_gives_it_back(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """The Lease gets another owner, and then none."""
    one, two = in_pod(cluster, namespace, "one"), in_pod(cluster, namespace, "two")
    first = Operator.fork(kubeconfig, namespace, **one).wait_ready()
    second = Operator.fork(kubeconfig, namespace, **two)
    try:
        second.process.wait_http(f"http://127.0.0.1:{second.port}/readyz")
        first.process.pause()
        eventually(lambda: leads(second), timeout_s=LEASE_SECONDS + FEW_SECONDS, what="the standby leads")
        (owner,) = cluster.rest.get(LEASE.format(namespace))["metadata"]["ownerReferences"]
        assert owner["uid"] == two["POD_UID"]
        first.process.resume()
        assert first.process.wait() == LEADERSHIP_LOST
        second.process.send(signal.SIGTERM)
        assert second.process.wait(timeout_s=lenient(STOP_SECONDS)) == 0
    finally:
        for each in (first, second):
            each.process.stop()
    lease = cluster.rest.get(LEASE.format(namespace))
    assert (lease["spec"]["holderIdentity"], "ownerReferences" in lease["metadata"]) == ("", False)


def test_no_successor_waits_for_the_lease_of_a_pod_that_is_gone(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Uninstalling takes its rights before it can give the Lease back: Kubernetes deletes the Lease with the pod."""
    first = Operator.fork(kubeconfig, namespace, **in_pod(cluster, namespace, "one")).wait_ready()
    held = cluster.rest.get(LEASE.format(namespace))["metadata"]["uid"]
    first.process.kill()
    cluster.rest.delete(f"/api/v1/namespaces/{namespace}/pods/one")
    with running(Operator.fork(kubeconfig, namespace)):
        lease = cluster.rest.get(LEASE.format(namespace))
        assert lease["metadata"]["uid"] != held
        assert "ownerReferences" not in lease["metadata"]
        assert lease["spec"]["leaseTransitions"] == 0

"""The chart installed, upgraded and uninstalled on a real API server, which has a say in every object.

The CRD comes and goes here. There is no node, so pods are accepted but never start.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest
import yaml
from delayq.contract.files import CONFIG_FILE
from delayq_operator.base import names

from tests.cluster.harness.cluster import CommandFailed
from tests.cluster.harness.resources import (
    CRD_FILES,
    CRD_PATH,
    found,
    install_crd,
    make_namespace,
    wait_served,
)
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import QUEUES, queue
from tests.offline.chart import (
    CHART,
    EVERYTHING,
    LOCAL,
    Values,
    merged,
    rendered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.offline.chart import Object
    from tests.servers import RedisServer

pytestmark = pytest.mark.xdist_group("bare")

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def room(plane: ControlPlane) -> str:
    """A namespace that takes restricted pods only."""
    name = f"chart-{uuid4().hex[:8]}"
    make_namespace(plane, name, RESTRICTED)
    return name


def helm(
    plane: ControlPlane,
    verb: str,
    namespace: str,
    values: Values | None = None,
    *,
    chart: Path = CHART,
    args: tuple[str, ...] = ("--disable-openapi-validation",),
) -> str:
    """Install or upgrade, and what Helm has to say.

    By default Helm leaves validation to the API server, which would have to describe all its kinds anew each time.
    """
    given = plane.dir / "values.json"
    given.write_text(json.dumps({**LOCAL, **(values or {})}))
    where = (f"--namespace={namespace}", f"--values={given}")
    return plane.helm(verb, "delayq", str(chart), *where, *args).stdout


def uninstall(plane: ControlPlane, namespace: str) -> str:
    return plane.helm("uninstall", "delayq", f"--namespace={namespace}", "--wait").stdout


# --- What the API server accepts.

VARIANTS: Final[tuple[Values, ...]] = (
    {"podDisruptionBudget": {"maxUnavailable": "50%"}},
    {
        "serviceMonitor": {"enabled": False},
        "podMonitor": {"enabled": True},
        "redis": {"persistence": {"enabled": False}},
        "leaderElection": {"enabled": False},
        "replicas": 1,
    },
)


def test_the_api_server_accepts_every_object_and_a_restricted_namespace_every_pod(
    plane: ControlPlane, room: str
) -> None:
    for number, more in enumerate(VARIANTS):
        served = {"watchNamespaces": [room, "default"]} if number else {}
        labelled = merged(EVERYTHING, {"commonLabels": {"team": "shop"}}, more, served)
        objects = rendered(labelled, f"--namespace={room}")
        # Of pods the service account must be there, not only in a dry run.
        text = "\n---\n".join(json.dumps(each) for each in objects if each["kind"] != "Pod")
        plane.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
        seen = set()
        for name, spec in pods(objects):
            there = {each["name"] for each in spec["volumes"]}
            # A StatefulSet would add the volumes that it claims.
            claimed = (
                [{"name": "data", "emptyDir": {}}] if name == "delayq-redis" and "data" not in there else []
            )
            spec |= {"serviceAccountName": "default", "volumes": [*spec["volumes"], *claimed]}
            pod = {"metadata": {"name": "x"}, "spec": spec}
            plane.rest.create(f"/api/v1/namespaces/{room}/pods", pod, dryRun="All")
            seen.add(name)
        assert seen == {"delayq-redis", "delayq-operator", "delayq-test"}


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for each in objects:
        template = each if each["kind"] == "Pod" else each.get("spec", {}).get("template")
        if template:
            yield each["metadata"]["name"], template["spec"]


# --- The life of a release.

OPEN: Final[Values] = {"policy": {"ownNamespace": True}}
"""Queues are allowed in the namespace of the release, which is the test's own."""


def test_install_test_upgrade_uninstall(
    plane: ControlPlane, room: str, tmp_path: Path, redis: RedisServer
) -> None:
    """What an upgrade changes is changed, also the CRD; what people rely on stays; uninstalling leaves queues and CRD.

    Queues stored under the older CRD stay, and may use what the newer one has.
    """
    queues = [{"name": "hello", "namespace": room}]
    alone = {"replicas": 1, "redis": {"persistence": {"enabled": False}, "queues": queues}}
    said = helm(plane, "install", room, merged(EVERYTHING, OPEN, alone), chart=older(tmp_path), args=())
    wait_served(plane)
    assert "objective" not in spec_schema(plane.rest.get(CRD_PATH))["properties"]
    commands_work(*notes_name_what_is_there(plane, room, said), tmp_path, redis)
    plane.rest.create(QUEUES.format(namespace=room), queue())
    kept = passwords(plane, room)
    assert [len(b64(each)) for each in kept] == [32, 32]

    helm(plane, "upgrade", room, merged(EVERYTHING, OPEN, alone, {"replicas": 3}), args=())
    operator = plane.rest.get(f"/apis/apps/v1/namespaces/{room}/deployments/delayq-operator")
    assert operator["spec"]["replicas"] == 3
    assert passwords(plane, room) == kept
    change = {"spec": {"objective": {"latenessMilliseconds": 60}}}

    def stored() -> bool:
        body = plane.rest.patch(f"{QUEUES.format(namespace=room)}/orders", change)
        return bool(body["spec"].get("objective", {}).get("latenessMilliseconds") == 60)

    eventually(stored, what="the new field is served")

    assert "kept due to the resource policy" in uninstall(plane, room)
    assert plane.rest.get(f"{QUEUES.format(namespace=room)}/orders")["spec"]["handler"]
    left = plane.kubectl(
        *("get", "deploy,sts,svc,sa,cm,secret,role,rolebinding,pdb,netpol", f"--namespace={room}"),
        *("--selector=app.kubernetes.io/managed-by=Helm", "--output=name"),
    ).stdout
    assert left == ""
    roles = plane.kubectl("get", "clusterrole,clusterrolebinding", "--output=name").stdout
    assert "delayq" not in roles
    said = helm(plane, "install", room)  # takes the kept CRD back
    assert "once test.redis says which Redis to use" in said  # without one, no test is promised
    assert "WARNING" not in said
    roles_of_the_cluster_work_with_delayqueues(plane, room)


def older(folder: Path) -> Path:
    """The chart, with a CRD that lacks a field."""
    shutil.copytree(CHART, folder / "delayq")
    file = CRD_FILES / "delayqueue.yaml"
    crd = yaml.safe_load(file.read_text())
    del spec_schema(crd)["properties"]["objective"]
    text = file.read_text().split("spec:\n")[0]
    (folder / "delayq" / "files" / "delayqueue.yaml").write_text(text + yaml.safe_dump({"spec": crd["spec"]}))
    return folder / "delayq"


def notes_name_what_is_there(plane: ControlPlane, room: str, said: str) -> tuple[str, list[str]]:
    """Return the document and the commands after it; the names in them are those of objects."""
    for words in (
        f"kubectl -n {room} rollout status deployment/delayq-operator",
        f"helm test delayq -n {room}",
        "NOT highly available",
        "every task is lost when its pod is",
    ):
        assert words in said
    text = said.partition("<<'EOF'\n")[2].partition("EOF")[0]
    plane.kubectl("apply", "-f", "-", input=text)  # indented as it is shown
    hello = yaml.safe_load(text)
    secret = plane.rest.get(f"/api/v1/namespaces/{room}/secrets/hello-redis")["data"]
    config = plane.rest.get(f"/api/v1/namespaces/{room}/configmaps/delayq-redis")["data"]["redis.conf"]
    (user,) = re.findall(r"^user (\S+) on #(\S+) ", config, re.MULTILINE)
    assert user == (b64(secret["username"]), sha256(b64(secret["password"]).encode()).hexdigest())
    assert {each["name"] for each in hello["spec"]["redis"]["auth"].values()} == {"hello-redis"}
    wait, schedule, get = re.findall(rf"^ +kubectl -n {room} ((?:wait|exec) .*)$", said, re.MULTILINE)
    assert wait.endswith(f"delayqueue/{hello['metadata']['name']}")
    return text, [schedule, get]


def commands_work(document: str, commands: list[str], folder: Path, redis: RedisServer) -> None:
    """In the pod: here on a copy of the document, and another Redis."""
    copy = folder / "hello.yaml"
    copy.write_text(document)
    for command in commands:
        where, argv = command.split(" -- ")
        assert where == f"exec deployment/{names.scanner('hello')}"
        assert f" {CONFIG_FILE} " in argv
        program, *words = shlex.split(argv.replace(CONFIG_FILE, str(copy)))
        done = subprocess.run(
            [Path(sys.executable).parent / program, *words, "--redis", redis.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "scheduled" in done.stdout, done


def passwords(plane: ControlPlane, room: str) -> list[str]:
    """Those of the administrator and of the queue hello."""
    secrets = f"/api/v1/namespaces/{room}/secrets/"
    return [plane.rest.get(secrets + each)["data"]["password"] for each in ("delayq-redis", "hello-redis")]


def b64(text: str) -> str:
    return base64.b64decode(text).decode()


ROLES: Final = {
    ("view", "get delayqueues --subresource=status"): "create delayqueues",
    ("edit", "update delayqueues --subresource=scale"): "update delayqueues --subresource=finalizers",
    ("admin", "create delayqueues"): "patch delayqueues --subresource=status",
}


def roles_of_the_cluster_work_with_delayqueues(plane: ControlPlane, room: str) -> None:
    def can(user: str, question: str) -> bool:
        asked = ("auth", "can-i", *question.split(), f"--as={user}", f"--namespace={room}")
        return plane.kubectl(*asked, check=False).stdout.strip() == "yes"

    for (role, may), may_not in ROLES.items():
        bound = (f"--clusterrole={role}", f"--user={role}", f"--namespace={room}")
        plane.kubectl("create", "rolebinding", role, *bound)
        eventually(partial(can, role, may), every_s=0.5, what=f"{role} may {may}")
        assert not can(role, may_not), (role, may_not)


def spec_schema(crd: Object) -> Object:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Object = schema["properties"]["spec"]
    return found


def test_a_foreign_crd_is_refused_until_its_owner_is_named(plane: ControlPlane, room: str) -> None:
    """Both ways out that docs/how-to/install.md names work."""
    install_crd(plane)
    with pytest.raises(CommandFailed, match="cannot be imported into the current release"):
        helm(plane, "install", room)
    helm(plane, "install", room, {"crds": {"install": False}}, args=("--replace",))
    uninstall(plane, room)
    assert plane.rest.get(CRD_PATH)
    helm(plane, "install", room, args=("--take-ownership",))
    assert plane.rest.get(CRD_PATH)["metadata"]["annotations"]["meta.helm.sh/release-name"] == "delayq"


def test_two_releases_share_a_cluster_and_without_keep_every_queue_goes_with_the_crd(
    plane: ControlPlane, room: str
) -> None:
    """When each serves its own namespaces."""
    other = f"{room}-b"
    make_namespace(plane, other)
    said = helm(plane, "install", room, {"watchNamespaces": [room], "crds": {"keep": False}, **OPEN})
    assert "deletes every DelayQueue and DelaySchedule in the cluster" in said
    second = {"watchNamespaces": [other], "crds": {"install": False}, "rbac": {"aggregate": False}}
    helm(plane, "install", other, second)
    wait_served(plane)
    plane.rest.create(QUEUES.format(namespace=room), queue())
    uninstall(plane, room)
    eventually(lambda: not found(plane, CRD_PATH))

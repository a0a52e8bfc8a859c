"""kubectl dq report: what a support request needs, and no secret: secrets are planted in every place."""

from __future__ import annotations

import base64
import io
import json
import stat
import tarfile
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.operator import queue
from tests.cluster.plugin import ForkedPlugin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("forks")

PLANTED: Final = {
    "redis password": "Rp-7hunter/2+x",
    "database password": "Dp%40s3cret",
    "worker variable": "Wv-literal-value",
    "scanner variable": "Sv-short",
    "exec variable": "Ev-of-the-handler",
    "exec argument": "Ea-card-4111",
    "sidecar argument": "Sa-token-value",
    "sidecar header": "Sh-probe-header",
    "annotation": "An-of-the-queue",
    "pod annotation": "Pa-of-the-pods",
    "last words": "Lw-payload-of-ada",
    "event": "Ev-in-a-url",
    "bearer": "Be4rer-0f-bad-news",
    "cookie": "Ck-of-a-session",
    "volume attribute": "Va-of-a-driver",
    "path of a URL": "Tk-in-a-path",
}
SECRETS: Final = {
    "redis-auth": {"password": PLANTED["redis password"]},
    "shop-db": {"url": f"postgres://shop:{PLANTED['database password']}@db/shop"},
}


def document() -> dict[str, Any]:
    """A DelayQueue with a secret wherever an author can put one, though nobody should."""
    headers = [{"name": "Key", "value": PLANTED["sidecar header"]}]
    sidecar = {
        "name": "proxy",
        "image": "proxy:1",
        "command": ["proxy", "--anything", PLANTED["sidecar argument"]],
        "args": [PLANTED["sidecar argument"]],
        "readinessProbe": {"httpGet": {"path": "/x", "port": 1, "httpHeaders": headers}},
    }
    reference = {"name": "DATABASE", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "url"}}}
    literal = {"name": "CARD", "value": PLANTED["worker variable"]}
    driver = {"driver": "csi.example", "volumeAttributes": {"key": PLANTED["volume attribute"]}}
    worker = {
        "metadata": {"annotations": {"vault.example/token": PLANTED["pod annotation"]}},
        "spec": {
            "containers": [{"name": "worker", "env": [literal, reference]}, sidecar],
            "volumes": [{"name": "vault", "csi": driver}],
        },
    }
    scanner = {"name": "scanner", "env": [{"name": "X", "value": PLANTED["scanner variable"]}]}
    auth = {"passwordSecretRef": {"name": "redis-auth"}}
    command = {"command": ["pay", PLANTED["exec argument"]], "env": {"A": PLANTED["exec variable"]}}
    body = queue(
        redis={"standalone": {"host": "redis-invalid"}, "auth": auth},
        handler={"exec": command},
        worker={"template": worker},
        scanner={"template": {"spec": {"containers": [scanner]}}},
        reaper={"suspend": True},  # whose pods come and go
    )
    body["metadata"]["annotations"] = {"shop.example/note": PLANTED["annotation"]}
    return body


def crash(world: World) -> None:
    """A worker ends with a payload on its lips; the operator quotes it."""
    pod = world.pods("worker")[0]["metadata"]["name"]
    said = f"charging {PLANTED['last words']}\nshop.DeclinedError: {PLANTED['last words']}"
    ended = {"exitCode": 1, "reason": "Error", "message": said}
    state = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 3}
    container = state | {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    world.cluster.rest.patch(
        f"{world.path('pods', pod)}/status",
        {"status": {"phase": "Running", "containerStatuses": [container]}},
    )
    world.until("Degraded", "True", "PodsFailing")
    world.event("PodsFailing", PLANTED["last words"])


def tell(world: World) -> None:
    """An event of another program about our queue."""
    message = (
        f"GET https://ada:{PLANTED['event']}@pay/x failed, Authorization: Bearer {PLANTED['bearer']}, "
        f"Cookie: {PLANTED['cookie']}, https://hooks/{PLANTED['path of a URL']}, "
        f"password {PLANTED['redis password']}, the database's {PLANTED['database password']}"
    )
    about = {"kind": "DelayQueue", "name": "orders", "namespace": world.namespace}
    event = {"involvedObject": about, "reason": "Told", "type": "Normal", "message": message}
    world.make("events", {"metadata": {"name": "orders.1"}, **event})


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
        files = {each.name: archive.extractfile(each) for each in archive}
        return {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file}


def found_in(files: dict[str, str]) -> set[str]:
    """Which planted secrets are there, as they are or encoded."""
    everything = "\n".join(files.values())
    return {
        what
        for what, value in PLANTED.items()
        for form in (value, base64.b64encode(value.encode()).decode(), value.replace("%40", "@"))
        if form in everything
    }


def test_no_secret_is_in_a_report(world: World, tmp_path: Path) -> None:
    """Not as it is, not encoded, wherever it was planted; and the planting worked, for the cluster has them all."""
    for name, data in SECRETS.items():
        world.make("secrets", {"metadata": {"name": name}, "stringData": data})
    # Which writes it all into an annotation, too.
    world.kubectl("apply", "-f", "-", text=yaml.safe_dump(document()))
    world.settle()
    crash(world)
    tell(world)
    everything = ("get", "delayqueues,pods,deployments,configmaps,secrets,events", "-o", "json")
    assert found_in({"cluster": world.kubectl(*everything)}) == set(PLANTED)
    file = tmp_path / "report.tar.gz"
    said = ForkedPlugin(world.cluster, world.namespace).out("report", "orders", "-o", str(file))
    files = unpacked(file)
    assert found_in(files) == set()
    assert said == f"wrote {file}: {len(files)} files, without secrets; read it before you send it\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    has_what_helps(files, world)
    needs_no_right_to_read_secrets(world, tmp_path / "another.tar.gz")


def has_what_helps(files: dict[str, str], world: World) -> None:
    """The resource with its status, children, pods and events; what is missing is named."""
    assert yaml.safe_load(files["delayqueue.yaml"])["status"]["conditions"]
    for kind in ("deployment.apps", "replicaset.apps", "configmap", "cronjob.batch", "service"):
        assert f"\n{kind}/orders-" in f"\n{files['children.txt']}"
    heading, *pods = files["pods.txt"].splitlines()
    assert (heading.split()[:3], len(pods)) == (["NAME", "READY", "STATUS"], 3)
    [worker] = [line for line in pods if "-worker-" in line]
    assert "CrashLoopBackOff" in worker
    events = [line.split() for line in files["events.txt"].splitlines()]
    assert {"Created", "PodsFailing"} <= {
        event[4] for event in events if event[:2] == ["orders", "DelayQueue"]
    }
    assert {event[1] for event in events} > {"DelayQueue", "Deployment"}
    assert "serverVersion" in json.loads(files["versions.json"])
    assert "Not gathered: doctor.txt: " in files["README.txt"]
    assert world.namespace in files["README.txt"]


def needs_no_right_to_read_secrets(world: World, file: Path) -> None:
    """Nothing is taken out, for only what the allow-list names gets in."""
    world.kubectl("create", "serviceaccount", "viewer")
    resources = "--resource=pods,events,delayqueues.delayq.dev"
    world.kubectl("create", "role", "look", "--verb=get,list", resources)
    account = f"--serviceaccount={world.namespace}:viewer"
    world.kubectl("create", "rolebinding", "look", "--role=look", account)
    viewer = ForkedPlugin(
        world.cluster, world.namespace, world.cluster.kubeconfig_for(world.namespace, "viewer")
    )
    done = viewer.run("report", "orders", "-o", str(file))
    assert done.returncode == 0, done.stderr
    files = unpacked(file)
    assert found_in(files) == set()
    assert "children.txt" not in files
    assert "not gathered: children.txt: not allowed" in done.stderr

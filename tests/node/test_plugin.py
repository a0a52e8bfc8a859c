"""kubectl dq where it matters: into real pods by exec, with real logs in a report."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import tarfile
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.plugin import Plugin
from tests.node.world import NodeWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.node.harness.node import Node
    from tests.node.release import Release

pytestmark = pytest.mark.xdist_group("plugin")

SCREEN_SECONDS = 60
HOUR_MS = 3_600_000
PAYLOAD = "card 4111 of Ada"
PASSWORD = "hunter2-at-the-node"  # noqa: S105  the test's own
LITERAL, NOTE = "Wv-literal-value", "An-of-the-queue"
PLANTED = (PAYLOAD, PASSWORD, base64.b64encode(PASSWORD.encode()).decode(), LITERAL, NOTE)
"""Secrets where authors put one: tests/unit/kubectl/test_allowed.py has the other places."""
TALKATIVE = """
import os, sys
def handle(task):
    print("charging", task.payload, os.environ["DATABASE"], flush=True)
    raise ValueError(f"declined: {task.payload}")
"""


@pytest.fixture(scope="module")
def ready(node: Node, operator: Release) -> Iterator[NodeWorld]:
    """A queue that works, with tasks that wait: 30 due in an hour, one held by a worker. Tests share it."""
    with NodeWorld.made(node, operator) as world:
        world.begin(worker={"replicas": 1}, schedules={})
        world.schedule({f"t{nth}": None for nth in range(30)}, lambda: HOUR_MS)
        world.schedule({"held": {"do": "hold"}})
        world.wait_entries("start", ["held"])
        yield world


@pytest.fixture
def dq(ready: NodeWorld) -> Plugin:
    return Plugin(ready.cluster, ready.namespace)


@pytest.fixture
def own(world: NodeWorld) -> Plugin:
    """In a namespace of the test's own."""
    return Plugin(world.cluster, world.namespace)


def processes(words: str) -> list[str]:
    """Command lines of this machine's processes, and of all pods, that hold these words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if words in line else []
    return found


def test_files_that_a_command_reads_and_writes_are_of_this_machine(
    dq: Plugin, ready: NodeWorld, tmp_path: Path
) -> None:
    with ready.client as client:
        before = client.counts().waiting
    dq.out("schedule", "orders", "-", "--id=piped", "--in=2h", text='"from stdin"')
    (tmp_path / "many.jsonl").write_text('{"payload": 1, "in": "2h"}\n{"payload": 2, "in": "2h"}\n')
    assert dq.out("schedule", "orders", "--many", f"{tmp_path}/many.jsonl") == "scheduled 2 tasks\n"
    with ready.client as client:
        piped = client.get("piped")
        assert piped
        assert json.loads(piped.body) == "from stdin"
        assert client.counts().waiting == before + 3
    done = dq.run("schedule", "orders", "1", "--id", "piped")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == "error: task piped exists already\nhint:  --if-exists keep, or replace\n"
    ready.schedule({"dead": {"do": "bury"}})
    eventually(lambda: "dead" in ready.snapshot.dlq, what="it is dead")
    file = tmp_path / "dead.jsonl"
    assert dq.out("dlq", "export", "orders", "--to", str(file)) == ""
    assert json.loads(file.read_text())["id"] == "dead"
    assert dq.run("dlq", "purge", "orders", "--all").returncode == 2, "stdin is not a terminal"
    assert dq.out("dlq", "purge", "orders", "--all", "--yes") == "purged 1 dead letter\n"


def test_a_command_that_reads_nothing_eats_nothing(dq: Plugin, tmp_path: Path) -> None:
    """So lines of a loop are left to the loop: `while read id; do kubectl dq task get orders $id; done`."""
    (tmp_path / "lines").write_text("t1\nt2\n")
    with (
        (tmp_path / "lines").open() as lines,
        dq.started("task", "get", "orders", "t0", stdin=lines) as child,
    ):
        assert "t0" in child.communicate(timeout=60)[0]
        assert lines.read() == "t1\nt2\n"


def test_a_schedule_is_watched_with_the_token_that_the_kubelet_mounts(dq: Plugin, ready: NodeWorld) -> None:
    kind = {"apiVersion": names.API_VERSION, "kind": names.DELAY_SCHEDULE.kind}
    spec = {"queueRef": {"name": "orders"}, "everySeconds": 3600, "suspend": True}
    ready.make(names.DELAY_SCHEDULE.plural, {**kind, "metadata": {"name": "hourly"}, "spec": spec})
    reported = (
        "wait",
        f"--namespace={ready.namespace}",
        "--for=condition=Suspended",
        "dsched/hourly",
        "--timeout=60s",
    )
    ready.cluster.kubectl(*reported)
    [made] = dq.out("cron", "run", "orders", "hourly").splitlines()
    ready.wait_entries("start", [made])
    assert "hourly" in dq.out("cron", "list", "orders")


def test_ctrl_c_ends_what_goes_on(dq: Plugin) -> None:
    """In a pipe: 130, and nothing is left in the pod."""
    with dq.started("top", "orders", "-o", "json", "--interval=200ms") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("{")
        assert processes("stdin_watchdog top"), "it runs in the pod"
        os.killpg(watching.pid, signal.SIGINT)
        assert watching.wait(20) == 130
    eventually(lambda: not processes("stdin_watchdog top"), what="it has ended in the pod, too")


def test_on_a_terminal_it_is_a_terminal_there_too(dq: Plugin) -> None:
    """`top` draws, takes a key, and ends with it; Ctrl-C goes through as 130."""
    screen = on_a_terminal(dq, "top", "orders", keys=b"q", code=0)
    assert b"\x1b[" in screen, "it is drawn, not printed"
    on_a_terminal(dq, "top", "orders", keys=b"\x03", code=130)


def on_a_terminal(dq: Plugin, *args: str, keys: bytes, code: int) -> bytes:
    """What is seen; the keys are pressed once the queue is."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with dq.started(*args, stdin=theirs, stdout=theirs, stderr=theirs, text=False) as child:
        os.close(theirs)
        seen, pressed, deadline = b"", False, time.monotonic() + SCREEN_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                with suppress(OSError):  # the other end was closed
                    seen += os.read(ours, 1 << 16)
            if b"scheduled" in seen and not pressed:
                os.write(ours, keys)
                pressed = True
        assert child.poll() == code, seen
    os.close(ours)
    return seen


def test_the_doctor_looks_from_a_pod_that_is_not_ready(own: Plugin, world: NodeWorld, tmp_path: Path) -> None:
    """Redis cannot be reached, so no scanner is ready: that is when one asks."""
    world.begin(wait="", redis={"standalone": {"host": "10.255.255.1"}}, worker={"replicas": 0})
    eventually(lambda: any(map(is_running, world.pods("scanner"))), timeout_s=60, what="a scanner runs")
    done = own.run("doctor", "orders")
    assert done.returncode == 4, done.stderr
    assert "✗ connect" in done.stdout
    done = own.run("task", "list", "orders")
    assert done.returncode == 4
    file = tmp_path / "report.tar.gz"
    own.out("report", "orders", "-o", str(file))
    assert "✗ connect" in unpacked(file)["doctor.txt"]
    assert "cannot reach Redis at 10.255.255.1:6379" in done.stderr
    assert "kubectl dq doctor orders" in done.stderr


def is_running(pod: dict[str, Any]) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any("running" in each["state"] for each in statuses)


def test_a_report_has_what_helps_and_no_secret(own: Plugin, world: NodeWorld, tmp_path: Path) -> None:
    """Of a handler that tells everything, after a crash; the Secret's value is in its log, too."""
    world.make("secrets", {"metadata": {"name": "shop-db"}, "stringData": {"url": PASSWORD}})
    world.make_code(TALKATIVE)
    reference = {"name": "DATABASE", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "url"}}}
    worker = world.worker()
    worker["template"]["metadata"] = {"annotations": {"vault.example/token": NOTE}}
    worker["template"]["spec"]["containers"][0]["env"] += [reference, {"name": "CARD", "value": LITERAL}]
    world.begin(handler={"python": {"callable": "recorder:handle"}}, worker={**worker, "replicas": 1})
    world.kubectl("annotate", "delayqueue/orders", f"shop.example/note={NOTE}")
    with world.client as client:
        client.schedule({"pay": PAYLOAD}, delay_ms=0, task_id="order-7")
    (pod,) = world.running()
    eventually(lambda: "declined" in log(world, pod), what="the handler has logged it all")
    everything = world.kubectl("get", "delayqueues,pods,secrets", "-o", "json") + log(world, pod)
    assert [each for each in PLANTED if each not in everything] == []
    os.kill(world.pid(pod), signal.SIGKILL)
    name = pod["metadata"]["name"]
    eventually(lambda: world.restarts(name), timeout_s=60, what="the container is started again")
    world.wait_running(1)

    file = tmp_path / "report.tar.gz"
    done = own.run("report", "orders", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "everything could be gathered"
    files = unpacked(file)
    assert done.stdout == f"wrote {file}: {len(files)} files, without secrets; read it before you send it\n"
    assert planted(files) == []
    previous = files[f"pods/{name}/worker.previous.log"]
    assert '"event": "handler_failed"' in previous
    assert '"error": "ValueError: <left out>"' in previous
    assert re.search(r"<\d+ lines? left out>", previous)
    assert "delayq_worker_slots" in files[f"pods/{name}/metrics.txt"]
    assert "✓ connect" in files["doctor.txt"]
    operators = [path for path in files if path.startswith("operator/") and path.endswith("/operator.log")]
    assert operators
    assert '"event": "leadership_acquired"' in files[operators[0]]
    assert "delayq_operator_leader" in files[operators[0].replace("operator.log", "metrics.txt")]
    has_the_resource_its_children_and_events(files)
    needs_no_right_to_read_secrets(world, tmp_path / "another.tar.gz")


def planted(files: dict[str, str]) -> list[str]:
    return [each for each in PLANTED if each in "\n".join(files.values())]


def has_the_resource_its_children_and_events(files: dict[str, str]) -> None:
    assert yaml.safe_load(files["delayqueue.yaml"])["status"]["conditions"]
    for kind in ("deployment.apps", "replicaset.apps", "configmap", "cronjob.batch", "service"):
        assert f"\n{kind}/orders-" in f"\n{files['children.txt']}"
    assert [line for line in files["pods.txt"].splitlines() if "-worker-" in line]
    events = [line.split() for line in files["events.txt"].splitlines()]
    assert "Created" in {event[4] for event in events if event[:2] == ["orders", "DelayQueue"]}
    assert "serverVersion" in json.loads(files["versions.json"])


def needs_no_right_to_read_secrets(world: NodeWorld, file: Path) -> None:
    """Nothing is taken out, for only what the allow-list names gets in; what is missing is named."""
    world.kubectl("create", "serviceaccount", "viewer")
    resources = "--resource=pods,events,delayqueues.delayq.dev"
    world.kubectl("create", "role", "look", "--verb=get,list", resources)
    world.kubectl(
        "create", "rolebinding", "look", "--role=look", f"--serviceaccount={world.namespace}:viewer"
    )
    viewer = world.cluster.kubeconfig_for(world.namespace, "viewer")
    done = Plugin(world.cluster, world.namespace, viewer).run("report", "orders", "-o", str(file))
    assert done.returncode == 0, done.stderr
    files = unpacked(file)
    assert planted(files) == []
    assert "children.txt" not in files
    assert "not gathered: children.txt: not allowed" in done.stderr
    assert "Not gathered: " in files["README.txt"]


def log(world: NodeWorld, pod: dict[str, Any]) -> str:
    return world.kubectl("logs", pod["metadata"]["name"], "--container=worker")


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each) for each in archive}
        return {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file}

"""docs/how-to/install.md, run as it stands, as a user would type it.

Every `sh` block, in order, without nodes; and the `console` blocks of one section, whose pods are processes of this
host: the commands must say what the page shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import NewTask, SyncClient

from tests.cluster.harness.binaries import KUBERNETES, ROOT
from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import delayqueues, found, install_crd, make_namespace, wait_served
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import queue

if TYPE_CHECKING:
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.servers import RedisServer

pytestmark = pytest.mark.xdist_group("bare")

PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text()
STUCK = "## When a deleted DelayQueue stays"
SECTION = PAGE.partition("## What a queue looks like\n")[2].partition("\n## ")[0]
TASKS = 1000
CODE = {"key": "orders", "path": "shop/orders.py"}


def blocks(text: str) -> list[str]:
    """The sh blocks, also those inside a list."""
    found = re.findall(r"^( *)```sh\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


HELM = """#!/bin/sh
case $1 in install | upgrade) set -- "$@" --disable-openapi-validation ;; esac
exec {helm} "$@"
"""
"""Leaves validation to the API server, which would have to describe all its kinds anew each time."""


def run(plane: ControlPlane, block: str, cwd: Path = ROOT) -> str:
    helm = plane.dir / "helm"
    helm.write_text(HELM.format(helm=KUBERNETES / "helm"))
    helm.chmod(0o755)
    path = f"{helm.parent}:{KUBERNETES}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=cwd,
        env=os.environ | {"PATH": path, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.dir)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.full
def test_every_command_of_the_page_works_in_its_order(plane: ControlPlane) -> None:
    page, _, stuck = PAGE.partition(STUCK)
    said = {block: run(plane, block) for block in blocks(page)}
    assert len(said) > 10

    def answer(command: str) -> str:
        return next(said[block] for block in said if command in block)

    assert "orders" in answer("kind: DelayQueue")
    assert re.search(r"^no$", answer("auth can-i"), re.MULTILINE)  # nor may it read other Secrets, namespaced
    assert "delayq-0.9.0" in answer("kubectl get crd")
    assert "RETAIN" in answer("deletionPolicy'").upper()
    assert not found(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/delayqueues.delayq.dev")
    with_operator, by_hand = blocks(stuck)
    delete_in_vain(plane)
    run(plane, with_operator)
    assert found(plane, f"{delayqueues('shop')}/stuck")  # there is no operator to let it go
    run(plane, by_hand)
    eventually(lambda: not found(plane, f"{delayqueues('shop')}/stuck"))


def delete_in_vain(plane: ControlPlane) -> None:
    """A DelayQueue as it is when its operator was uninstalled too early."""
    # A quota refuses what it counts until its controller has found the CRD again, which takes half a minute.
    plane.kubectl("delete", "quota", "delayq", "--namespace", "shop")
    install_crd(plane)
    body = queue("stuck", deletionPolicy="Delete")
    body["metadata"]["finalizers"] = ["delayq.dev/erase"]
    plane.rest.create(delayqueues("shop"), body)
    plane.rest.delete(f"{delayqueues('shop')}/stuck")


# --- What the commands of a section say.


def commands() -> list[tuple[str, str]]:
    """Each `$` line of its console blocks, and what it is shown to print."""
    shown = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
    parts = [part for block in shown for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(line, output) for line, _, output in (part.partition("\n") for part in parts)]


def normalised(text: str) -> list[str]:
    """Lines without what differs from run to run; everything up to a line of dots may be left out."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r"\b(\d+[smhd])+\b", "AGE", text)
    lines = [re.sub(r"[ -]{2,}|\t", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def shows(shown: str, said: str) -> None:
    """What is shown is in what was said, line for line; a line of an ellipsis stands for any number of lines."""
    wanted, there = normalised(shown), normalised(said)
    missing = [line for line in wanted if line != "…" and line not in there]
    assert not missing, f"shown, but not said: {missing}\nsaid: {there}"


@pytest.fixture
def document(redis: RedisServer, tmp_path: Path) -> Path:
    """The page's document, on a Redis that is there, with the handler's module mounted instead of in an image."""
    [text] = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    body: dict[str, Any] = yaml.safe_load(text)
    body["spec"]["redis"] = {"standalone": {"host": "127.0.0.1", "port": redis.port}}
    mount = {"name": "code", "mountPath": "/code"}
    path = {"name": "PYTHONPATH", "value": "/code"}
    body["spec"]["worker"]["template"] = {
        "spec": {
            "containers": [{"name": "worker", "env": [path], "volumeMounts": [mount]}],
            "volumes": [{"name": "code", "configMap": {"name": "code", "items": [CODE]}}],
        }
    }
    file = tmp_path / "queue.yaml"
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.mark.usefixtures("document")
def test_the_page_shows_what_happens(plane: ControlPlane, redis: RedisServer, tmp_path: Path) -> None:
    """helm install, kubectl apply, wait, get, describe: as a reader would, and with the same result."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    code = {"metadata": {"name": "code"}, "data": {"orders": "async def cancel_unpaid(task): pass\n"}}
    for namespace in ("delayq-system", "shop"):
        make_namespace(plane, namespace)
    plane.rest.create("/api/v1/namespaces/shop/configmaps", code)
    with (
        ProcessNode(plane, "delayq-system", tmp_path / "operator"),
        ProcessNode(plane, "shop", tmp_path / "shop"),
        SyncClient(redis.url, queue="orders") as client,
    ):
        for line, output in commands():
            if line.endswith(" dq"):
                client.schedule_many(
                    NewTask({"order": number}, delay_ms=3_600_000) for number in range(TASKS)
                )

            def said(line: str = line, output: str = output) -> bool:
                shows(output, run(plane, line, tmp_path))
                return True

            if line.startswith("helm"):
                said()  # installs; a second time it would refuse
                wait_served(plane)  # the API server takes a moment, and a reader longer
            else:
                eventually(said, timeout_s=60, every_s=0.5, what=line)

"""A section of docs/how-to/install.md: its commands are run in a cluster, and must say what the page shows.

Ages, times and the names of pods differ from run to run; they are compared as such, not letter by letter.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import NewTask, SyncClient

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import make_namespace, wait_served
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.servers import RedisServer

PAGE = (ROOT / "docs/how-to/install.md").read_text()
SECTION = PAGE.partition("## What a queue looks like\n")[2].partition("\n## ")[0]
TASKS = 1000
CODE = {"key": "orders", "path": "shop/orders.py"}


@dataclass(frozen=True)
class Command:
    """One `$` line of a console block, and what it is shown to print."""

    line: str
    output: str

    def run(self, plane: ControlPlane, directory: Path) -> str:
        program, *words = shlex.split(self.line)
        words = [str(directory / word) if word.endswith(".yaml") else word for word in words]
        words = [str(ROOT / word) if word.startswith("charts/") else word for word in words]
        done = plane.helm(*words) if program == "helm" else plane.kubectl(*words)
        return done.stdout


def commands() -> list[Command]:
    found = []
    for block in re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            found.append(Command(line, output))
    return found


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


@pytest.mark.xdist_group("bare")
@pytest.mark.usefixtures("document")
def test_the_page_shows_what_happens(plane: ControlPlane, redis: RedisServer, tmp_path: Path) -> None:
    """helm install, kubectl apply, wait, get, describe: as a reader would, and with the same result."""
    code = {"metadata": {"name": "code"}, "data": {"orders": "async def cancel_unpaid(task): pass\n"}}
    for namespace in ("delayq-system", "shop"):
        make_namespace(plane, namespace)
    plane.rest.create("/api/v1/namespaces/shop/configmaps", code)
    with (
        ProcessNode(plane, "delayq-system", tmp_path / "operator"),
        ProcessNode(plane, "shop", tmp_path / "shop"),
        SyncClient(redis.url, queue="orders") as client,
    ):
        for command in commands():
            if command.line.endswith(" dq"):
                client.schedule_many(
                    NewTask({"order": number}, delay_ms=3_600_000) for number in range(TASKS)
                )

            if command.line.startswith("helm"):
                shows(command.output, command.run(plane, tmp_path))  # installs; a second time it would refuse
                wait_served(plane)  # the API server takes a moment, and a reader longer
                continue

            def said(command: Command = command) -> bool:
                shows(command.output, command.run(plane, tmp_path))
                return True

            eventually(said, timeout_s=60, every_s=0.5, what=command.line)

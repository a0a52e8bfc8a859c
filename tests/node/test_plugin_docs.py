"""docs/reference/kubectl.md shows what `kubectl dq` says: each of its commands is run, and what it says is compared.

Ages, times, addresses and the names of pods differ from run to run and are compared as such. On a difference, the page
as it should be is written beside the test's other files; its path is in the message.
"""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING

import pytest
from delayq import NewTask

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.cluster.plugin import Plugin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node.world import NodeWorld

PAGE = (ROOT / "docs" / "reference" / "kubectl.md").read_text()
DIFFERING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
    (r"\b((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d\d:\d\d(:\d\d)?\b", "TIME"),  # the day, before midnight
    (r"-[a-z0-9]{6,10}-[a-z0-9]{5}\b", "-POD"),
    (r"-\d{8}-[a-z0-9]{5}\b", "-POD"),
    (r"\b\d+\.\d+\.\d+\.\d+\b", "IP"),
    (r"\b(in )?\d+(\.\d+)?(ms|s|m|h|d)\b( ago)?|\bjust now\b|\bnow\b", "AGE"),
    (r"test-[0-9a-f]{8}", "shop"),
    (r"\b\d+ files\b", "N files"),
)


def normalised(text: str) -> list[str]:
    for pattern, to in DIFFERING:
        text = re.sub(pattern, to, text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("Redis is ")]


@pytest.mark.full
def test_the_page_shows_what_the_commands_say(world: NodeWorld, tmp_path: Path) -> None:
    # 1,000 tasks fall due at once: on a busy machine some are late by more than a second. Reaper pods come and go.
    objective = {"latenessMilliseconds": 20_000}
    world.begin(worker={"replicas": 2}, reaper={"suspend": True}, objective=objective)
    world.schedule({"dead": {"do": "bury"}, **{f"t{nth}": None for nth in range(1000)}}, lambda: 0)
    world.wait_entries("start", ["t999"])
    due_ms = int(time.time() * 1000) + 45 * 60_000  # the same of all: a delay counts from each round trip
    with world.client as client:
        client.schedule_many(NewTask(None, due_ms=due_ms) for _ in range(5000))  # what is forecast

    def reported() -> bool:
        backlog = world.queue()["status"].get("backlog", {})
        return (backlog.get("scheduled"), backlog.get("inFlight"), backlog.get("dead")) == (5000, 0, 1)

    eventually(reported, timeout_s=60, what="status tells of the tasks")
    dq = Plugin(world.cluster, world.namespace)

    def rolled_out() -> bool:
        """Whether every controller has acted on the last change, and no pod is about to go."""
        specs = [world.queue()]
        for plural in ("deployments", "replicasets"):
            specs += world.cluster.rest.items(f"/apis/apps/v1/namespaces/{world.namespace}/{plural}")
        seen = all(
            each["status"].get("observedGeneration") == each["metadata"]["generation"] for each in specs
        )
        pods = world.cluster.rest.items(f"/api/v1/namespaces/{world.namespace}/pods")
        return seen and not any("deletionTimestamp" in pod["metadata"] for pod in pods)

    def run(line: str) -> str:
        if " report " in f"{line} ":  # it says of a pod that goes meanwhile that it could not be read
            eventually(rolled_out, timeout_s=60, what="no pod is about to go")
        words = [
            str(tmp_path / word) if "." in word and "/" not in word else word for word in shlex.split(line)
        ]
        done = dq.run(*words[2:])
        assert done.returncode == 0, done.stderr
        said = (done.stdout + done.stderr).replace(str(tmp_path) + "/", "").replace(world.namespace, "shop")
        return "".join(f"{each.rstrip()}\n" for each in said.splitlines())

    made = re.sub(
        r"(?<=^```console\n)(.*?)(?=^```$)",
        lambda block: "".join(
            f"$ {line}\n{run(line)}" for line in re.findall(r"^\$ (.*)$", block[1], re.MULTILINE)
        ),
        PAGE,
        flags=re.DOTALL | re.MULTILINE,
    )
    (tmp_path / "kubectl.md").write_text(made)
    shown, said = normalised(PAGE), normalised(made)
    assert shown == said, f"the page as it should be: {tmp_path / 'kubectl.md'}"

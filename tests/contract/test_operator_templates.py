"""docs/reference/templates.md says what there is: its example merges, its children and alerts are those made."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from delayq_operator.base import names
from delayq_operator.desired import desired, erase_job
from delayq_operator.desired.deployments import worker

from tests.unit.operator.queues import RICH, SETTING, facts, queue

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "templates.md").read_text()


def test_the_example_merges() -> None:
    example, annotated = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    of = queue(**yaml.safe_load(example)["spec"])
    pod = worker(of, SETTING, facts(of))["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["worker", "proxy"]
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "128Mi"}
    of = queue(**yaml.safe_load(annotated)["spec"])
    assert "reloader.stakater.com/auto" in worker(of, SETTING, facts(of))["metadata"]["annotations"]


def test_the_children_are_those_that_are_made() -> None:
    rows = re.findall(r"^\| ([A-Z][^|]+?) \| (`orders-[^|]+?) \|", PAGE, re.MULTILINE)
    reported = {
        (kind.split(",")[0] if kind.startswith("Service,") else kind, name)
        for kinds, cell in rows
        for kind in ([kinds] if kinds.startswith("Service,") else kinds.split(", "))
        for name in re.findall(r"`([^`]+)`", cell)
    }
    of = queue(RICH)
    known = facts(of, kinds=frozenset({kind.kind for kind in names.OPTIONAL}), issuer_keys="{}")
    made = [*desired(of, SETTING, known), erase_job(of, SETTING, known)]
    assert reported == {(each["kind"], each["metadata"]["name"]) for each in made}

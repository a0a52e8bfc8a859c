"""What a public host reads: workflows, updates of dependencies, templates, addresses. They name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
CHART = ROOT / "charts" / "delayq"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (GITHUB / "workflows").glob("*.yaml")}


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_may_write_only_where_a_job_says_so(workflow: str) -> None:
    assert WORKFLOWS[workflow]["permissions"] == {"contents": "read"}


def test_a_release_publishes_the_wheel_both_images_and_the_chart() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["images"]["strategy"]["matrix"]["image"] == ["operator", "worker"]
    used = {str(step.get("uses", "")).partition("@")[0] for step in steps("release")}
    assert {"pypa/gh-action-pypi-publish", "actions/attest-build-provenance", "actions/attest-sbom"} <= used
    ran = " ".join(str(step.get("run", "")) for step in steps("release"))
    assert "helm push" in ran
    assert ran.count("cosign sign") == 2


def test_updates_look_at_folders_that_are_there() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    folders = [folder for each in updates for folder in each.get("directories", [each.get("directory")])]
    assert [folder for folder in folders if not list(ROOT.glob(folder.strip("/") or "pyproject.toml"))] == []


def test_all_addresses_are_of_one_repository() -> None:
    home = PROJECT["urls"]["Homepage"]
    texts = [*GITHUB.rglob("*.y*ml"), ROOT / "SECURITY.md", CHART / "Chart.yaml"]
    found = [
        url for path in texts for url in re.findall(r"https://github\.com/[\w.-]+/[\w-]+", path.read_text())
    ]
    assert {*found, *(url[: len(home)] for url in PROJECT["urls"].values())} == {home}


# --- The chart, for Artifact Hub.

ABOUT: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def annotation(name: str) -> Any:  # noqa: ANN401 -- lists and text
    return yaml.safe_load(ABOUT["annotations"][f"artifacthub.io/{name}"])


def test_the_chart_names_its_home_its_sources_and_an_icon_of_this_checkout() -> None:
    home = PROJECT["urls"]["Homepage"]
    assert (ABOUT["home"], ABOUT["sources"]) == (home, [home])
    icon = ROOT / ABOUT["icon"].removeprefix(f"{home}/raw/main/")
    assert icon.read_text().startswith("<svg ")


def test_the_chart_lists_its_crds_as_they_are() -> None:
    crds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert annotation("crds") == [
        {
            "kind": crd["spec"]["names"]["kind"],
            "version": version["name"],
            "name": crd["metadata"]["name"],
            "displayName": crd["spec"]["names"]["kind"],
            "description": version["schema"]["openAPIV3Schema"]["description"],
        }
        for crd in crds
        for version in crd["spec"]["versions"]
    ]


def test_the_chart_lists_the_images_that_a_release_makes() -> None:
    """The release writes their full names into the values; the chart of a checkout has none."""
    (command,) = [step["run"] for step in WORKFLOWS["release"]["jobs"]["chart"]["steps"] if "run" in step]
    registry = f"ghcr.io/{PROJECT['urls']['Homepage'].split('/')[-2]}"
    (pattern, replacement) = re.findall(r'sed -i "s\|(.*)\|(.*)\|" charts/delayq/values.yaml', command)[0]
    released = re.sub(
        pattern, replacement.replace("$REGISTRY", registry), (CHART / "values.yaml").read_text()
    )
    values = yaml.safe_load(released)
    redis = VALUES["redis"]["image"]
    assert {each["name"]: each["image"] for each in annotation("images")} == {
        "operator": f"{values['image']['repository']}:{ABOUT['appVersion']}",
        "worker": f"{values['worker']['image']['repository']}:{ABOUT['appVersion']}",
        "redis": f"docker.io/library/{redis['repository']}:{redis['tag']}",
    }
    assert "/" in values["image"]["repository"]


def test_every_place_that_names_a_version_of_delayq_names_this_one() -> None:
    named = re.compile(r"(?:delayq(?:-[a-z]+)?[:-]|delayq |image\.version=\")(\d+\.\d+\.\d+)")
    folders = (
        "README.md",
        "docs",
        "examples",
        "charts",
        "operator",
        "worker",
        "tests/node",
        "tests/cluster",
        "pyproject.toml",
    )
    files = [path for each in folders for path in (ROOT / each, *(ROOT / each).rglob("*")) if path.is_file()]
    texts = {path: path.read_text() for path in files if path.suffix in (".md", ".yaml", ".toml", ".py", "")}
    measured = ROOT / "docs/explanation/guarantees.md"  # says which version its figures are of
    found = {
        path.relative_to(ROOT): set(named.findall(text)) for path, text in texts.items() if path != measured
    }
    assert {path: versions for path, versions in found.items() if versions - {PROJECT["version"]}} == {}
    assert sum(map(len, found.values())) >= 8

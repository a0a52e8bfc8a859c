"""What a public host reads: workflows, updates of dependencies, templates, addresses. They name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.offline.chart import DIGEST, released

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
    urls = {name: url for name, url in PROJECT["urls"].items() if name != "Documentation"}
    assert {*found, *(url[: len(home)] for url in urls.values())} == {home}


def test_the_documentation_is_where_a_workflow_publishes_it() -> None:
    """A project site of GitHub Pages, which serves the branch that tools/publish-docs pushes."""
    owner, name = PROJECT["urls"]["Homepage"].split("/")[-2:]
    settings = (ROOT / "mkdocs.yml").read_text()
    assert PROJECT["urls"]["Documentation"] == f"https://{owner}.github.io/{name}/"
    assert f"\nsite_url: {PROJECT['urls']['Documentation']}\n" in settings
    assert f"\nrepo_url: {PROJECT['urls']['Homepage']}\n" in settings
    jobs = WORKFLOWS["docs"]["jobs"]
    ran = {job: " ".join(str(step.get("run", "")) for step in each["steps"]) for job, each in jobs.items()}
    assert "make docs" in ran["build"]
    assert "tools/publish-docs" in ran["publish"]
    assert (jobs["publish"]["permissions"], jobs["publish"]["if"]) == (
        {"contents": "write"},
        "github.event_name == 'push'",
    )


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


def test_a_release_writes_full_names_and_digests_of_the_images_into_the_chart(tmp_path: Path) -> None:
    registry = f"ghcr.io/{PROJECT['urls']['Homepage'].split('/')[-2]}"
    values = yaml.safe_load((released(tmp_path, registry, ABOUT["appVersion"]) / "values.yaml").read_text())
    images = {
        "operator": values["image"],
        "worker": values["worker"]["image"],
        "redis": values["redis"]["image"],
    }
    assert {each["digest"] for each in images.values()} == {DIGEST}
    named = {
        name: f"{each['repository']}:{each['tag'] or ABOUT['appVersion']}" for name, each in images.items()
    }
    assert {each["name"]: each["image"] for each in annotation("images")} == named
    assert (tmp_path / "asked").read_text().split() == list(named.values())


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_action_is_named_by_its_commit_and_the_version_beside_it(workflow: str) -> None:
    used = re.findall(r"uses: (.*)$", (GITHUB / "workflows" / f"{workflow}.yaml").read_text(), re.MULTILINE)
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []


def test_a_release_is_scanned_for_vulnerabilities_before_it_is_published_or_signed() -> None:
    for job, after in (("wheel", "pypa/gh-action-pypi-publish"), ("images", "sigstore/cosign-installer")):
        used = [
            str(step.get("uses", "")).partition("@")[0] for step in WORKFLOWS["release"]["jobs"][job]["steps"]
        ]
        assert used.index("anchore/scan-action") < used.index(after)


def test_uv_is_installed_by_hashes() -> None:
    [pinned] = re.findall(r"^uv==[\d.]+ \\$", (ROOT / "tools/uv.txt").read_text(), re.MULTILINE)
    assert pinned
    assert '--require-hashes -r "$ROOT/tools/uv.txt"' in (ROOT / "tools/uv").read_text()


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
        "tests/offline",
        "tools/cluster",
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

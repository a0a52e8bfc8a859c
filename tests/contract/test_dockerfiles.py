"""What builds images leaves out, and what guides say of images. What is in them: tests/images."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]
NOTES = (ROOT / "docs" / "how-to" / "images.md").read_text()
USER = "65532:65532"


def test_a_build_gets_nothing_that_python_left_in_the_checkout() -> None:
    """Bytecode of a run on this machine holds the time of its source: the image would differ from build to build."""
    folders = {path.parent for path in ROOT.glob("[!.]*/**/Dockerfile")}
    contexts = {ROOT if folder.name in {"operator", "worker"} else folder for folder in folders}
    assert len(contexts) == 5
    for context in contexts:
        rules = (context / ".dockerignore").read_text().splitlines()
        assert rules[-1] == "**/__pycache__", "the last rule that matches decides"
        assert "*" in rules


def test_extras_are_installed_by_the_hashes_of_the_lock() -> None:
    script = (ROOT / "tools" / "images" / "layers").read_text()
    assert re.search(r"uv export .*--frozen .*\"\$\{@/#/--extra=\}\" -o run\.txt$", script, re.MULTILINE)
    assert re.search(r"--require-hashes -r run\.txt$", script, re.MULTILINE)


def test_released_images_have_the_newest_python_that_is_declared() -> None:
    newest = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each][-1]
    for image in ("operator", "worker"):
        assert (
            f"\nARG BASE=docker.io/library/python:{newest}-slim\n"
            in (ROOT / image / "Dockerfile").read_text()
        )


def test_the_guide_builds_the_images_that_the_chart_asks_for() -> None:
    values = yaml.safe_load((ROOT / "charts" / "delayq" / "values.yaml").read_text())
    asked = {values["image"]["repository"], values["worker"]["image"]["repository"]}
    built = re.findall(r"^\$ docker build -f (\S+)/Dockerfile -t ([\w-]+):(\S+)", NOTES, re.MULTILINE)
    assert {folder for folder, _, _ in built} == {"operator", "worker"}
    assert {(name, tag) for _, name, tag in built} == {(name, VERSION) for name in asked}


def test_the_guides_name_the_user_and_the_version() -> None:
    assert set(re.findall(r"`USER (\d+:\d+)`|^USER (\d+:\d+)$", NOTES, re.MULTILINE)) == {
        (USER, ""),
        ("", USER),
    }
    assert set(re.findall(r"^FROM delayq-worker:(\S+)$", NOTES, re.MULTILINE)) == {VERSION}
    assert f"USER {USER.partition(':')[0]}" in (ROOT / "docs" / "reference" / "templates.md").read_text()

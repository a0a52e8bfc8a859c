"""The Dockerfiles copy what is there, install what pyproject.toml names, and make images that run as nobody."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
NOTES = (ROOT / "docs" / "how-to" / "images.md").read_text()
BASE = "docker.io/library/python:3.12-slim"
USER = "65532:65532"


@dataclass(frozen=True)
class Image:
    """An image: the folder of its Dockerfile, the command it starts with, the extras it has."""

    folder: str
    command: str
    extras: tuple[str, ...]

    @property
    def text(self) -> str:
        """The Dockerfile, without comments, an instruction a line."""
        text = (ROOT / self.folder / "Dockerfile").read_text()
        return re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))

    def values(self, instruction: str) -> list[str]:
        return re.findall(rf"^{instruction} (.+)$", self.text, re.MULTILINE)

    @property
    def sources(self) -> list[str]:
        """What is copied out of the checkout."""
        copies = [copy.split() for copy in self.values("COPY") if not copy.startswith("--from=")]
        return [source for *sources, _ in copies for source in sources]


# The worker's has what every guard needs: a DelayQueue may choose one without an image being built.
IMAGES = [
    Image("operator", "delayq-operator", ("operator",)),
    Image("worker", "delayq", ("worker", "sql", "mysql")),
]


def test_a_build_gets_nothing_that_python_left_in_the_checkout() -> None:
    """Bytecode of a run on this machine holds the time of its source: the image would differ from build to build."""
    folders = {path.parent for path in ROOT.glob("[!.]*/**/Dockerfile")}
    contexts = {ROOT if folder.name in {"operator", "worker"} else folder for folder in folders}
    assert len(contexts) == 4
    for context in contexts:
        rules = (context / ".dockerignore").read_text().splitlines()
        assert rules[-1] == "**/__pycache__", "the last rule that matches decides"
        assert "*" in rules


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.folder)
def test_an_image_is_two_layers_on_a_base_that_the_builder_may_choose_and_starts_without_a_shell(
    image: Image,
) -> None:
    assert image.values("ARG") == [f"BASE={BASE}"]
    assert image.values("FROM") == ["${BASE} AS build", "${BASE}"]
    final = image.text.rpartition("\nFROM ")[2]
    layers = ["--from=build /layers/dependencies /", "--from=build /layers/delayq /"]
    assert re.findall(r"^(?:COPY|ADD|RUN) (.+)$", final, re.MULTILINE) == layers
    assert set(image.extras) <= set(PROJECT["optional-dependencies"])
    assert re.findall(r"layers (dependencies|delayq) (.+)$", image.text, re.MULTILINE) == [
        ("dependencies", " ".join(image.extras)),
        ("delayq", image.command),
    ]
    assert image.command in PROJECT["scripts"]
    assert [json.loads(words) for words in image.values("ENTRYPOINT")] == [[image.command]]
    assert [json.loads(words) for words in image.values("CMD")] == [["--help"]]
    assert image.values("ENV")[0].startswith("PATH=/opt/delayq/bin:")
    assert "PYTHONUNBUFFERED=1" in image.values("ENV")[0]
    assert not re.search(r"://|BEGIN |:latest\b|index-url", image.text), (
        "no address, certificate or moving tag"
    )


def test_extras_are_installed_by_the_hashes_of_the_lock() -> None:
    script = (ROOT / "tools" / "images" / "layers").read_text()
    assert re.search(r"uv export .*--frozen .*\"\$\{@/#/--extra=\}\" -o run\.txt$", script, re.MULTILINE)
    assert re.search(r"--require-hashes -r run\.txt$", script, re.MULTILINE)


def test_handlers_are_looked_for_where_the_guide_copies_them() -> None:
    worker = next(image for image in IMAGES if image.folder == "worker")
    assert worker.values("WORKDIR")[-1] == "/app"
    assert "`/app` is the working directory" in NOTES


def test_the_guide_builds_the_images_that_the_chart_asks_for() -> None:
    values = yaml.safe_load((ROOT / "charts" / "delayq" / "values.yaml").read_text())
    asked = {values["image"]["repository"], values["worker"]["image"]["repository"]}
    built = re.findall(r"^\$ docker build -f (\S+)/Dockerfile -t ([\w-]+):(\S+)", NOTES, re.MULTILINE)
    assert {folder for folder, _, _ in built} == {image.folder for image in IMAGES}
    assert {(name, tag) for _, name, tag in built} == {(name, PROJECT["version"]) for name in asked}


def test_the_guides_name_the_user_and_the_version() -> None:
    assert set(re.findall(r"`USER (\d+:\d+)`|^USER (\d+:\d+)$", NOTES, re.MULTILINE)) == {
        (USER, ""),
        ("", USER),
    }
    assert set(re.findall(r"^FROM delayq-worker:(\S+)$", NOTES, re.MULTILINE)) == {PROJECT["version"]}
    assert f"USER {USER.partition(':')[0]}" in (ROOT / "docs" / "reference" / "templates.md").read_text()

"""docs/architecture.md and the import linter draw the same operator, and every module of it is in the drawing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import delayq_operator

ROOT = Path(__file__).parents[2]
PACKAGE = Path(delayq_operator.__file__).parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
SECTION = (ROOT / "docs" / "architecture.md").read_text().split("## The operator")[1].split("\n## ")[0]


def layers() -> list[list[str]]:
    """Each layer's modules, high to low."""
    contract = next(c for c in CONTRACTS if c.get("containers") == ["delayq_operator"])
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def modules() -> set[str]:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"} | packages


def test_every_module_has_a_layer() -> None:
    assert {module for layer in layers() for module in layer} == modules()


def test_the_architecture_has_the_same_layers_in_the_same_order() -> None:
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|$", SECTION, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers()


def test_everything_below_metrics_is_pure() -> None:
    """A module that is added to a low layer must not be forgotten in the contract that forbids I/O."""
    pure = next(c for c in CONTRACTS if "what decides does no I/O" in c["name"])
    below = layers()[layers().index(["metrics"]) + 1 :]
    listed = {module.removeprefix("delayq_operator.") for module in pure["source_modules"]}
    assert listed == {module for layer in below for module in layer}

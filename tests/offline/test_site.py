"""The documentation site, built as `make docs` builds it: each warning is an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(DOCS.rglob("*.md"))
GENERATED: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
"""The place of a docstring in a page."""
MODULES: Final = ("delayq", "delayq.django", "delayq.guards", "delayq.handlers", "delayq.testing")
"""Whose public names are API, see docs/reference/api-policy.md."""

pytestmark = pytest.mark.xdist_group("site")  # one process builds it


def mkdocs(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What `make setup` installed builds the site of a folder with a mkdocs.yml."""
    return subprocess.run(
        [ROOT / ".cache/docs/bin/mkdocs", "build", *arguments],
        cwd=folder,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = mkdocs(ROOT, "--site-dir", folder)
    assert built.returncode == 0, built.stderr
    return folder


class Html(HTMLParser):
    """Elements of a page, and those of its article without what the theme adds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.article: Counter[str] = Counter()
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.all.append((tag, found))
        if tag == "article":
            self._inside = True
        elif self._inside and "md-content__button" not in (found.get("class") or ""):
            self.article[tag] += found.get("class") != "headerlink"

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "article"


@cache
def parsed(path: Path) -> Html:
    return Html(path.read_text())


def built(site: Path, page: Path) -> Html:
    name = page.relative_to(DOCS).with_suffix("")
    return parsed(site / (name.parent if name.name == "README" else name) / "index.html")


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    """Links lead elsewhere; scripts, styles, fonts and pictures do not."""
    loaded: set[str] = set()
    for path in site.rglob("*.html"):
        for tag, found in parsed(path).all:
            if tag == "link" and found.get("rel") not in ("canonical", "edit", "next", "prev"):
                loaded.add(found.get("href") or "")
            loaded |= {found[name] or "" for name in ("src", "srcset", "poster", "data") if name in found}
            # The theme's script would ask GitHub for stars, and another host for the code that draws diagrams.
            assert found.get("data-md-component") != "source"
            assert "mermaid" not in (found.get("class") or "").split()
    for path in site.rglob("*.css"):
        loaded |= set(re.findall(r"(?:@import\s+|url\()[\"']?([^\"')\s]+)", path.read_text()))
    assert len(loaded) > 10
    assert {each for each in loaded if re.match(r"(?!data:)\w+:|//", each)} == set()


def test_each_page_has_the_structure_that_github_shows(site: Path) -> None:
    """Python-Markdown reads lists and what is in them in its own way."""
    github = MarkdownIt("commonmark").enable("table")
    compared = {"ol", "ul", "li", "p", "pre", "table", "tr", "td", "th", "img", "a", "h1", "h2", "h3", "h4"}
    different: dict[Path, dict[str, tuple[int, int]]] = {}
    for page in PAGES:
        if not GENERATED.search(page.read_text()):
            wanted, found = (
                Html(f"<article>{github.render(page.read_text())}").article,
                built(site, page).article,
            )
            counts = {tag: (wanted[tag], found[tag]) for tag in compared if wanted[tag] != found[tag]}
            different |= {page.relative_to(ROOT): counts} if counts else {}
    assert different == {}


def test_each_public_name_is_on_one_page_with_its_docstring(site: Path) -> None:
    named = Counter(name for page in PAGES for name in GENERATED.findall(page.read_text()))
    public = {f"{module}.{name}" for module in MODULES for name in import_module(module).__all__}
    assert public - set(named) == set()
    assert {name for name, times in named.items() if times > 1} == set()
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[2]: entry["text"] for entry in entries}
    assert {name for name in named if name not in found} == set()
    assert "may or may not be stored" in found["delayq.Client.schedule"]


def test_a_search_finds_pages_and_no_decision_records(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    pages = {str(page.relative_to(DOCS).with_suffix("")) + "/" for page in PAGES}
    assert found == {re.sub(r"(^|/)README/$", r"\1", page) for page in pages if "decisions/0" not in page}


def test_a_link_to_a_file_that_is_no_page_leads_to_the_repository(site: Path) -> None:
    page = built(site, DOCS / "how-to/images.md")
    targets = [found.get("href") for tag, found in page.all if tag == "a"]
    assert "https://github.com/delayq/delayq/blob/main/tools/images/layers" in targets
    assert "https://github.com/delayq/delayq/tree/main/examples/hello" in targets


def test_the_build_names_each_broken_link_and_each_page_without_a_place(tmp_path: Path) -> None:
    """The settings of this site, with three pages."""
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nsite_dir: {tmp_path / 'site'}\nplugins: []\nexclude_docs: ''\n"
        f"theme: {{ custom_dir: {ROOT / 'tools/site/theme'} }}\nhooks: [{ROOT / 'tools/site/hooks.py'}]\n"
        "nav: [README.md, there.md]\n"
    )
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "there.md").write_text("# There\n\n## Part\n")
    (docs / "README.md").write_text(
        "# Start\n\n[there](there.md#part), [settings](../mkdocs.yml), [all](../docs)\n"
    )
    assert mkdocs(tmp_path).returncode == 0

    (docs / "README.md").write_text("# Start\n\n[page](gone.md), [part](there.md#gone), [file](../gone.py)\n")
    (docs / "lonely.md").write_text("# Lonely\n")
    built = mkdocs(tmp_path)
    assert built.returncode == 1
    said = ("gone.md", "'#gone'", "../gone.py", "lonely.md")
    assert [each for each in said if each not in built.stderr + built.stdout] == []

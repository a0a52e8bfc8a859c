"""Each page of docs/ has a place in the navigation of the site, and the start page has the same sections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RECORD = re.compile(r"contributing/decisions/\d{4}-")  # listed on the page of decisions
START = (ROOT / "docs" / "README.md").read_text()


class Loader(yaml.SafeLoader):
    """mkdocs.yml names functions by tags, which are not called here."""


Loader.add_multi_constructor("", lambda *_: None)
NAVIGATION: list[dict[str, Any]] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]  # noqa: S506


def pages(entry: Any) -> list[str]:  # noqa: ANN401 -- a page, a titled page, or a section
    if isinstance(entry, str):
        return [entry]
    return [page for each in (entry.values() if isinstance(entry, dict) else entry) for page in pages(each)]


def test_each_page_is_in_the_navigation_once() -> None:
    docs = ROOT / "docs"
    there = [str(page.relative_to(docs)) for page in docs.rglob("*.md")]
    assert sorted(pages(NAVIGATION)) == sorted(page for page in there if not RECORD.match(page))


def test_the_start_page_has_the_sections_of_the_navigation_in_their_order() -> None:
    titles = [title for section in NAVIGATION for title in section]
    assert re.findall(r"^## (.+)$", START, re.MULTILINE) == titles

"""MkDocs calls these while it builds the site. They make the site of pages that are written for GitHub.

GitHub indents lists as CommonMark does, Python-Markdown does not. Pages link to folders, and to files outside docs/.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import mdformat
from markdown import Extension
from markdown.treeprocessors import Treeprocessor

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REVISION: Final = os.environ.get("DOCS_REVISION", "main")
"""The branch or tag whose files the pages link to: for the pages of a release, its tag."""
RECORDS: Final = "contributing/decisions/0"
"""No search finds decision records, whose titles are full of users' words; it finds the page that lists them."""
WEIGHTS: Final = {
    "contributing/": 0.1,
    "how-to/": 2.0,
    "explanation/faq.md": 2.0,
    "reference/python-": 0.3,  # short texts full of names
}
"""Of the results of a search, by the beginning of a page's path: pages that help come before those for contributors."""
warn: Final = logging.getLogger("mkdocs.hooks.site").warning
"""Under `strict`, a warning of MkDocs' loggers fails the build."""


class OutsideLinks(Treeprocessor):
    """A link to a file of the checkout that is no page becomes a link to the repository, if there is such a file."""

    def __init__(self, config: MkDocsConfig) -> None:
        """Work on the pages of `config.docs_dir`, which is a folder of the checkout."""
        super().__init__()
        self.docs = Path(config.docs_dir).resolve()
        self.repository = config.repo_url
        self.page = self.docs / "README.md"

    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            link.set("href", self.address(link.get("href", "")))

    def address(self, href: str) -> str:
        url = urlsplit(href)
        target = (self.page.parent / url.path).resolve()
        if url.scheme or url.netloc or not url.path or (self.docs in target.parents and not target.is_dir()):
            return href  # MkDocs checks links between pages
        checkout = self.docs.parent
        if checkout not in target.parents or not target.exists():
            warn("%s: there is no file for the link '%s'", self.page.relative_to(checkout), href)
            return href
        kind, fragment = "tree" if target.is_dir() else "blob", f"#{url.fragment}" if url.fragment else ""
        return f"{self.repository}/{kind}/{REVISION}/{target.relative_to(checkout)}{fragment}"


class Links(Extension):
    """Adds `OutsideLinks` to Python-Markdown."""

    def __init__(self, processor: OutsideLinks) -> None:
        super().__init__()
        self.processor = processor

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 -- Python-Markdown's name
        md.treeprocessors.register(self.processor, "outside-links", 1)  # before MkDocs' own, which has 0


_processors: Final[list[OutsideLinks]] = []


def on_config(config: MkDocsConfig) -> None:
    _processors[:] = [OutsideLinks(config)]  # again at each change under `mkdocs serve`
    config.markdown_extensions.append(Links(_processors[0]))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    [processor] = _processors
    processor.page = processor.docs / page.file.src_uri
    weights = (weight for path, weight in WEIGHTS.items() if page.file.src_uri.startswith(path))
    page.meta["search"] = {
        "exclude": page.file.src_uri.startswith(RECORDS),
        "boost": next(weights, 1.0),
    }
    compact = {"plugin": {"tables": {"compact_tables": True}}}
    return mdformat.text(markdown, extensions={"mkdocs", "tables"}, options=compact)

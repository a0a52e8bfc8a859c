"""Tables of the pages for users are read at a glance: no cell has more than 20 words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MOST_WORDS = 20


def cells(text: str) -> list[str]:
    """The cells of all tables of a page. Code is left out."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^ *\|(.*)\| *$", prose, re.MULTILINE)
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]


def long(text: str) -> list[str]:
    return [cell for cell in cells(text) if len(cell.split()) > MOST_WORDS]


def user_pages() -> list[str]:
    return [
        name
        for name in sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
        if not name.startswith("contributing/")
    ]


@pytest.mark.parametrize("page", user_pages())
def test_no_cell_has_more_than_20_words(page: str) -> None:
    assert long((DOCS / page).read_text()) == []


def test_a_long_cell_is_found_and_code_is_not_read() -> None:
    words = " ".join(["word"] * MOST_WORDS)
    text = f"| a | b |\n|---|---|\n| {words} | {words} more |\n\n```\n| {words} more |\n```\n"
    assert long(text) == [f"{words} more"]

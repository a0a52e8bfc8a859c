"""docs/reference/openapi.json and the tables of docs/reference/http.md are what the routes serve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from delayq.api.problems import TYPES
from delayq.api.routes import ROUTES

from tools.reference.openapi import pages, text

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "http.md").read_text()


def test_the_committed_document_is_made_from_the_routes() -> None:
    assert (REFERENCE / "openapi.json").read_text() == text(), (
        "run: python -m tools.reference.openapi docs/reference"
    )


def test_the_pages_are_made_from_it() -> None:
    for name, page in pages().items():
        assert (REFERENCE / name).read_text() == page, "run: python -m tools.reference.openapi docs/reference"
        assert "$ref" not in page


def test_the_page_lists_each_route_with_its_right() -> None:
    listed = {
        (method, path, right)
        for paths, right in re.findall(r"^\| (`[A-Z].*?) \| .* \| `([a-z-]+)` \|$", PAGE, re.MULTILINE)
        for method, path in re.findall(r"`([A-Z]+) (\S+)`", paths)
    }
    assert listed == {
        (each.method, each.path, each.verb) for each in ROUTES if each.path != "/tasks/{kind}"
    }, "IDs as ?id= are in the text"


@pytest.mark.parametrize("kind", TYPES)
def test_the_page_explains_each_error(kind: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{kind}`" in line]
    assert str(TYPES[kind]) in row.split("|")[1]

"""docs/reference/openapi.json and the tables of docs/reference/http.md are what the routes serve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq.api.meanings import FIELDS, OF_ONE
from delayq.api.openapi import ANSWERS, document
from delayq.api.problems import TYPES
from delayq.api.routes import ROUTES

from tools.reference.openapi import pages, text

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def fields_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a schema, also of objects and lists within it."""
    for name, each in schema.get("properties", {}).items():
        yield name, each
        yield from fields_of(each)
    if "items" in schema:
        yield from fields_of(schema["items"])


def test_each_field_of_an_answer_has_a_meaning_and_no_other_has_one() -> None:
    schemas = document()["components"]["schemas"]
    found = [(name, *field) for name in ANSWERS for field in fields_of(schemas[name])]
    assert [
        (name, field)
        for name, field, each in found
        if "$ref" not in each and not each["description"].endswith(".")
    ] == []
    assert {*FIELDS} == {field for _, field, _ in found}
    assert {*OF_ONE} <= {f"{name}.{field}" for name, field, _ in found}

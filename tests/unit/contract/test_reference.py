"""The pages of the document are the model, printed."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from delayq.contract import parse

from tools.reference.document import pages

FOLDER = Path(__file__).parents[3] / "docs/reference"


def test_the_pages_are_current() -> None:
    there = {name: (FOLDER / name).read_text() for name in pages()}
    assert there == pages(), "run: python -m tools.reference.document docs/reference"


def test_the_example_on_the_page_is_a_document() -> None:
    (example,) = re.findall("```yaml\n(.*?)```", pages()["document.md"], re.DOTALL)
    assert parse(yaml.safe_load(example)).queue == "orders"

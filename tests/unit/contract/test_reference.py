"""The pages of the document are the model, printed."""

from __future__ import annotations

from pathlib import Path

from tools.reference.document import pages

FOLDER = Path(__file__).parents[3] / "docs/reference"


def test_the_pages_are_current() -> None:
    there = {name: (FOLDER / name).read_text() for name in pages()}
    assert there == pages(), "run: python -m tools.reference.document docs/reference"

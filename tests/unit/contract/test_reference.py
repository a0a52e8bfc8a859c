"""docs/document.md is the model, printed."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from delayq.contract import parse
from delayq.contract.reference import render

PAGE = Path(__file__).parents[3] / "docs/document.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m delayq.contract.reference > docs/document.md"


def test_the_example_on_the_page_is_a_document() -> None:
    (example,) = re.findall("```yaml\n(.*?)```", render(), re.DOTALL)
    assert parse(yaml.safe_load(example)).queue == "orders"

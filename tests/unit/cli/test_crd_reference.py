"""docs/reference/crd.md is crds/delayqueue.yaml, printed; what it leaves out is in docs/reference/document.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.contract.crd import CRD, ROOT, Schema, every_rule
from tools.reference.crd import render

PAGE = Path(__file__).parents[3] / "docs/reference/crd.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m tools.reference.crd > docs/reference/crd.md"


def leaves(schema: Schema) -> int:
    """How many fields there are below a mapping."""
    fields = schema.get("items", schema).get("properties", {})
    return len(fields) + sum(map(leaves, fields.values()))


def test_every_field_of_status_every_column_and_every_rule_is_there() -> None:
    page = render()
    version = CRD["spec"]["versions"][0]
    status = page.split("## Status")[1]
    assert len(re.findall(r"^\| `\w+` \|", status, re.MULTILINE)) == leaves(ROOT["properties"]["status"])
    columns = page.split("## Columns")[1].split("\n## ")[0]
    assert columns.count("\n| ") == 1 + len(version["additionalPrinterColumns"])
    assert [rule for rule in every_rule() if f": {rule}\n" not in page] == []

#!/usr/bin/env python3
"""Bring in line what charts/delayq holds twice: the rule of a Redis user, and the sentences of values.yaml.

`.venv/bin/python tools/chart-sync.py` after a change of values.yaml or of that rule; with --check it only compares.
"""
# ruff: noqa: T201 -- a script for the shell

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from delayq.contract.acl import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "delayq"
BEGIN, END = "<!-- values: made by tools/chart-sync.py -->", "<!-- end of values -->"
LONGEST_DEFAULT = 60

Schema = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """One value of the chart, or a section of them."""

    path: str
    sentence: str
    default: object
    schema: Schema

    @property
    def is_section(self) -> bool:
        """Tell whether its parts have sentences of their own."""
        return "properties" in self.schema

    @property
    def row(self) -> str:
        """A row of the README's table."""
        shown = json.dumps(self.default, ensure_ascii=False)
        if self.is_section:
            return f"| **`{self.path}`** | | {self.sentence} |"
        default = f"`{shown}`" if len(shown) <= LONGEST_DEFAULT else "see values.yaml"
        return f"| `{self.path}` | {default} | {self.sentence} |"


def values(schema: Schema) -> Iterator[Value]:
    """Every value in the order of the file; KeyError names one that the schema does not know."""
    text = (CHART / "values.yaml").read_text()
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, path: str, schema: Schema) -> Iterator[Value]:
        for key, value in node.value:
            name = f"{path}{key.value}"
            inner = schema["properties"][key.value]
            default = yaml.safe_load(yaml.serialize(value))
            yield Value(name, sentence_above(lines, key.start_mark.line), default, inner)
            if "properties" in inner:
                yield from walk(value, f"{name}.", inner)

    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)  # noqa: S101 -- for mypy
    yield from walk(root, "", schema)


def sentence_above(lines: list[str], line: int) -> str:
    """Return the comment that ends right above a line."""
    comment: list[str] = []
    while line and (above := lines[line - 1].strip()).startswith("#"):
        comment.insert(0, above.lstrip("# "))
        line -= 1
    return " ".join(comment)


def described_schema() -> str:
    """Return the schema with the sentences of values.yaml as its descriptions."""
    schema: Schema = json.loads((CHART / "values.schema.json").read_text())
    for value in values(schema):
        rest = {key: there for key, there in value.schema.items() if key != "description"}
        value.schema.clear()
        value.schema.update({"description": value.sentence, **rest})
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def tabled_readme() -> str:
    """Return the README with the table of values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    head, _, rest = (CHART / "README.md").read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    rows = "\n".join(value.row for value in values(schema))
    return f"{head}{BEGIN}\n| Value | Default | Meaning |\n|---|---|---|\n{rows}\n{END}{tail}"


def main() -> int:
    """Write, or with --check compare; 1 when something differs."""
    wanted = {
        CHART / "files" / "acl.txt": rule(queue="QUEUE", redis=(6, 2)) + "\n",
        CHART / "values.schema.json": described_schema(),
        CHART / "README.md": tabled_readme(),
    }
    changed = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        print(f"{path.relative_to(ROOT)} differs from its source" if "--check" in sys.argv else path)
        if "--check" not in sys.argv:
            path.write_text(wanted[path])
    return int(bool(changed) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

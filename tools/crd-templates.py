#!/usr/bin/env python3
"""Write the schema of pod templates into the CRD, from the table in delayq.contract.pod_template.

`.venv/bin/python tools/crd-templates.py` after a change of the table; with --check it only says whether they differ.
"""
# ruff: noqa: T201 -- a script for the shell

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml
from delayq.contract.pod_template import DELETE, FIELDS, QUANTITY

CRD: Final = Path(__file__).parents[1] / "crds" / "delayqueue.yaml"
OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}
PLAIN: Final = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "port": {"x-kubernetes-int-or-string": True},
    "open": {"type": "object", **OPEN},
    "amount": OPEN | {"pattern": f"^{QUANTITY}$"},
}
NULL: Final = {"nullable": True}
"""null deletes: the API server drops it where it is not allowed."""

BLOCKS: Final = ("PodTemplate", "Pod", "Container")
"""Types with a line for each field; all others are on one line, for the size of the file."""

Schema = dict[str, Any]


class Block(Schema):
    """A mapping that is written in block style."""


class Dumper(yaml.SafeDumper):
    """Writes flow style, but for blocks."""


Dumper.add_representer(
    Block,
    lambda dumper, block: dumper.represent_mapping("tag:yaml.org,2002:map", block.items(), flow_style=False),
)


def schema(kind: str) -> Schema:
    """Return the schema of a type of the table."""
    inner = kind.strip("[]{}")
    mapping = Block if inner in BLOCKS else dict
    if kind.startswith("["):
        return mapping({"type": "array", "items": schema(inner)})
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": schema(inner) | NULL}
    if kind in PLAIN:
        return dict(PLAIN[kind])
    fields = FIELDS[kind]
    properties = mapping({DELETE: {"type": "string"}})
    for field, of in fields.items():
        properties[field.rstrip("!")] = schema(of)
        if not field.endswith("!"):
            properties[field] |= NULL
    required = [field[:-1] for field in fields if field.endswith("!")]
    return mapping(type="object", **{"required": required} if required else {}, properties=properties)


def written(text: str) -> str:
    """Return the CRD with this schema below the description of the pod template that the others refer to."""
    made = yaml.dump(
        schema("PodTemplate"), Dumper=Dumper, default_flow_style=True, sort_keys=False, width=10**6
    )
    return re.sub(
        r"^( +)(description: \"Pod template, [^\n]*\n)(?:\1\S[^\n]*\n|\1 [^\n]*\n)*",
        lambda found: f"{found[1]}{found[2]}{indent(made, found[1])}",
        text,
        flags=re.MULTILINE,
    )


def main() -> int:
    """Write, or with --check compare; 1 when they differ."""
    text = CRD.read_text()
    if written(text) == text:
        return 0
    print(f"{CRD.name} differs from the table" if "--check" in sys.argv else CRD)
    if "--check" not in sys.argv:
        CRD.write_text(written(text))
    return int("--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

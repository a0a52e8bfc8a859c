"""The schema of pod templates, from the table in delayq.contract.pod_template."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.pod_template import DELETE, FIELDS, QUANTITY

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}
PLAIN: Final[Mapping[str, Schema]] = {
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


class Line(Schema):
    """A mapping that is written on one line."""


class Template(Schema):
    """A pod template, which is written once."""


@cache
def template(description: str) -> Schema:
    """Return the schema of pod templates, always the same object."""
    return Template({"description": description, **schema("PodTemplate")})


def schema(kind: str) -> Schema:
    """Return the schema of a type of the table."""
    inner = kind.strip("[]{}")
    shown: type[Schema] = dict if inner in BLOCKS else Line
    if kind.startswith("["):
        return shown({"type": "array", "items": schema(inner)})
    if kind.startswith("{"):
        return Line({"type": "object", "additionalProperties": schema(inner) | NULL})
    if kind in PLAIN:
        return Line(PLAIN[kind])
    required = [field[:-1] for field in FIELDS[kind] if field.endswith("!")]
    properties: Schema = {DELETE: Line(type="string")}
    for field, of in FIELDS[kind].items():
        properties[field.rstrip("!")] = schema(of)
        if not field.endswith("!"):
            properties[field] |= NULL
    return shown({"type": "object", **({"required": required} if required else {}), "properties": properties})

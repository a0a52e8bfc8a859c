"""The schema of Kubernetes' types, such as pod templates, as delayq.contract.kubernetes reads them.

There are no sentences below the first level, and no list types: with them, the CRD would be too large for plain
`kubectl apply`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.kubernetes import (
    DELETE,
    LONGEST_AMOUNT,
    LONGEST_TEXT,
    MERGED,
    MOST_ENTRIES,
    QUANTITY,
    fields,
    item_of,
    most_items,
    patched,
    required,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

PLAIN: Final[Mapping[str, Schema]] = {
    "text": {"type": "string", "maxLength": LONGEST_TEXT},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "port": {"x-kubernetes-int-or-string": True, "maxLength": LONGEST_TEXT},
    "amount": {"x-kubernetes-int-or-string": True, "maxLength": LONGEST_AMOUNT, "pattern": f"^{QUANTITY}$"},
}
NULL: Final = {"nullable": True}
"""null deletes: the API server drops it where it is not allowed."""
ABOUT: Final = {
    "metadata": "Labels and annotations to add to the pods.",
    "spec": "Fields of a pod: kubectl explain pod.spec.",
}
BLOCKS: Final = ("PodTemplateSpec", "PodSpec", "Container")
"""Types with a line for each field; all others are on one line, for the size of the file."""


class Line(Schema):
    """A mapping that is written on one line."""


class Template(Schema):
    """A pod template, which is written once."""


@cache
def template(kind: str, description: str) -> Schema:
    """Return the schema of a pod template, always the same object."""
    made = schema(kind)
    for field, about in ABOUT.items():
        made["properties"][field] = (
            type(made["properties"][field])(description=about) | made["properties"][field]
        )
    return Template({"description": description, **made})


def schema(kind: str, most: int = 0) -> Schema:
    """Return the schema of a type; of a list, with at most so many items."""
    inner = item_of(kind)
    shown: type[Schema] = dict if inner in BLOCKS else Line
    if kind.startswith("["):
        return shown({"type": "array", "maxItems": most, "items": schema(inner)})
    if kind.startswith("{"):
        return Line(type="object", maxProperties=MOST_ENTRIES, additionalProperties=_value(inner))
    return Line(PLAIN[kind]) if kind in PLAIN else shown(_fields(kind))


def _value(kind: str) -> Schema:
    """Return the schema of the values of a map; of amounts, those of the operator can be deleted."""
    if kind != "amount":
        return schema(kind)
    return schema(kind) | NULL | {"pattern": f"^({QUANTITY}|delete)$"}


def _fields(kind: str) -> Schema:
    key = required().get(kind)
    properties: Schema = {DELETE: Line(type="string", enum=["delete"])} if kind in patched() else {}
    for field, of in fields(kind).items():
        properties[field] = schema(of, most_items(field))
        if kind in MERGED and field != key:
            properties[field] |= NULL
    return {"type": "object", **({"required": [key]} if key else {}), "properties": properties}

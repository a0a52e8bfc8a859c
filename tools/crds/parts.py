"""How status and columns of a CRD are declared; status.py declares them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a CRD has besides the document."""

    status: Schema
    columns: list[Schema]
    subresources: Schema = field(default_factory=dict)
    """Besides status."""


def mapping(description: str, /, **fields: Schema) -> Schema:
    """Declare a mapping."""
    return {"description": description, "type": "object", "properties": fields}


def number(description: str, *, bits: int = 32) -> Schema:
    """Declare a number that is never negative."""
    return {"description": description, "type": "integer", "format": f"int{bits}", "minimum": 0}


def text(description: str, most: int, **limits: object) -> Schema:
    """Declare text of a bounded length."""
    return {"description": description, "type": "string", "maxLength": most, **limits}


def time(description: str) -> Schema:
    """Declare an instant."""
    return {"description": description, "type": "string", "format": "date-time"}


def conditions(whose: str, most: int) -> Schema:
    """Declare the conditions, which have the fields of metav1.Condition."""
    item = mapping(
        "One thing that is true, false or unknown, since when, and why.",
        type=text(
            "What is true or not, such as Ready.", 316, pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        ),
        status={"description": "Whether it is.", "type": "string", "enum": ["True", "False", "Unknown"]},
        observedGeneration=number("Generation of the spec that this was last found for.", bits=64),
        lastTransitionTime=time("Since when."),
        reason=text(
            "Why, in one CamelCase word.",
            1024,
            minLength=1,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
        message=text("Why, in a sentence.", 32_768),
    )
    return {
        "description": f"What is true of the {whose}",
        "type": "array",
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {**item, "required": ["type", "status", "lastTransitionTime", "reason", "message"]},
    }


def column(name: str, path: str, description: str, kind: str = "string", *, wide: bool = False) -> Schema:
    """Declare a column of `kubectl get`, or of `kubectl get -o wide`.

    A time to come is no date: kubectl prints dates as ages, and such a one as <invalid>.
    """
    priority = {"priority": 1} if wide else {}
    return {"name": name, "description": description, "type": kind, "jsonPath": path, **priority}


def of(condition: str, field: str = "status") -> str:
    """Return the path of a condition."""
    return f'.status.conditions[?(@.type=="{condition}")].{field}'

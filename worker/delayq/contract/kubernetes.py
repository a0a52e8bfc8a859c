"""Types of Kubernetes in a document: pod templates, and who may connect. Each field is checked to the last leaf.

The table of fields is Kubernetes' own (kubernetes_types.py). A mapping that is not merged over one of the operator's
cannot delete anything: null in it means absent, as everywhere else in a document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from delayq.contract.kinds import Kind
from delayq.contract.kubernetes_types import TYPES
from delayq.contract.problems import INVALID, type_name
from delayq.contract.record import refuse_unknown
from delayq.contract.trees import complaint, copy

if TYPE_CHECKING:
    from delayq.contract.problems import Place

DELETE: Final = "$patch"
"""A mapping of `PATCHED` may contain `$patch: delete`, and one of amounts, too: it deletes the operator's value."""

KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "hostAliases": "ip",
}
"""Lists that merge item by item → the key of their items, which is required."""

MERGED: Final = frozenset(
    {"PodSpec", "PodSecurityContext", "Container", "SecurityContext", "ResourceRequirements", "Probe"}
)
"""Types of which the operator's own template has values: null deletes them."""

PLAIN: Final = {
    "text": "text",
    "int": "a whole number",
    "bool": "true or false",
    "port": "a whole number or text",
    "amount": 'a quantity, such as 500m, 1Gi or "0.5"',
}
"""Types without fields of their own, with what they expect."""

QUANTITY: Final = r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?\s*"
"""A quantity as text: number and unit. The API server's own message about another text has no path."""

MOST_ITEMS: Final = 32
MOST_ITEMS_OF: Final[Mapping[str, int]] = {
    "args": 256,
    "command": 256,
    "env": 256,
    "values": 256,
    "volumeMounts": 64,
    "volumes": 64,
}
"""Lists that may be longer."""
MOST_ENTRIES: Final = 64
LONGEST_TEXT: Final = 32_768
LONGEST_AMOUNT: Final = 64


def item_of(kind: str) -> str:
    """Return the type of the items or values of a list or a map."""
    return kind.strip("[]{}")


@cache
def fields(kind: str) -> Mapping[str, str]:
    """Return the fields of a type, each with its type: `[type]` is a list, `{type}` a map."""
    return {field: of for field, _, of in (each.partition(":") for each in TYPES[kind].split())}


def most_items(field: str) -> int:
    """Return how many items a list may have."""
    return MOST_ITEMS_OF.get(field, MOST_ITEMS)


@cache
def required() -> Mapping[str, str]:
    """Return types whose items lists merge → their key."""
    every = ((field, of) for kind in TYPES for field, of in fields(kind).items())
    return {item_of(of): KEYS[field] for field, of in every if field in KEYS and of.startswith("[")}


@cache
def patched() -> frozenset[str]:
    """Return the types with `$patch`: what the operator's template may have as a whole, to be deleted."""
    below = {of for kind in MERGED for of in fields(kind).values() if of in TYPES}
    return frozenset({*below, *required()})


@dataclass(frozen=True, slots=True)
class KubernetesType(Kind):
    """A mapping with the fields of a type of Kubernetes; all of them are optional."""

    type: str
    expected: str = "a mapping"

    def read(self, value: object, place: Place) -> object:
        """Return a copy of the value, if it is bounded and has fields of the type only."""
        if not isinstance(value, Mapping):
            return _refuse(self.expected, value, place)
        if problem := complaint(value):
            return place.refuse(problem)
        before = len(place.problems)
        read = _read_fields(self.type, value, place)
        return read if len(place.problems) == before else INVALID

    def write(self, value: object) -> object:
        """Return a copy, so that callers cannot change the model."""
        return copy(value)


def _read(kind: str, value: object, place: Place, most: int) -> object:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return place.refuse(f"expected at most {LONGEST_TEXT} characters, got {len(value)}")
    if kind in PLAIN:
        return value if _fits(kind, value) else _refuse(PLAIN[kind], value, place)
    if kind.startswith("["):
        return _read_list(item_of(kind), value, place, most)
    if not isinstance(value, Mapping):
        return _refuse("a mapping", value, place)
    return (
        _read_map(item_of(kind), value, place) if kind.startswith("{") else _read_fields(kind, value, place)
    )


def _read_list(kind: str, value: object, place: Place, most: int) -> object:
    if not isinstance(value, list):
        return _refuse("a list", value, place)
    if len(value) > most:
        return place.refuse(f"expected a list of at most {most} items, got {len(value)}")
    return [_read(kind, item, place.item(index), most) for index, item in enumerate(value)]


def _read_map(kind: str, value: Mapping[str, object], place: Place) -> object:
    if len(value) > MOST_ENTRIES:
        return place.refuse(f"expected a mapping of at most {MOST_ENTRIES} entries, got {len(value)}")
    if kind == "amount":
        return {key: _read_amount(key, item, place.key(key)) for key, item in value.items()}
    return {key: _read(kind, item, place.key(key), 0) for key, item in value.items() if item is not None}


def _read_amount(key: str, value: object, place: Place) -> object:
    deletes = value is None or (key == DELETE and value == "delete")
    return value if deletes else _read("amount", value, place, 0)


def _read_fields(kind: str, value: Mapping[str, object], place: Place) -> object:
    known, key = fields(kind), required().get(kind)
    allowed = [*known, *([DELETE] if kind in patched() else [])]
    refuse_unknown([field for field in value if field not in allowed], [*known], place)
    if key is not None and value.get(key) is None:
        place.field(key).refuse("required, but missing")
    return {
        field: item if item is None else _read_field(field, known.get(field), item, place.field(field))
        for field, item in value.items()
        if field in allowed and (item is not None or (kind in MERGED and field not in (key, DELETE)))
    }


def _read_field(field: str, kind: str | None, value: object, place: Place) -> object:
    if kind is None:
        return value if value == "delete" else _refuse("delete", value, place)
    return _read(kind, value, place, most_items(field))


def _fits(kind: str, value: object) -> bool:
    # The API server rejects whole numbers beyond 64 bits.
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    match kind:
        case "text":
            return isinstance(value, str)
        case "int":
            return whole
        case "bool":
            return isinstance(value, bool)
        case "port":
            return whole or isinstance(value, str)
        case _:
            return whole or (isinstance(value, str) and _is_quantity(value))


def _is_quantity(text: str) -> bool:
    return len(text) <= LONGEST_AMOUNT and re.fullmatch(QUANTITY, text) is not None


def _refuse(expected: str, value: object, place: Place) -> object:
    # The value may be a secret by mistake: name only its type.
    return place.refuse(f"expected {expected}, got {type_name(value)}")

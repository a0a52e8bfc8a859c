"""Declares fields of dataclasses: `lease_duration_seconds: int = whole(1, 86_400, default=30, doc="…")`.

Without a default the field is required; with the default None it may be absent. The functions are typed as the value of
the field, as dataclasses.field is, for type checkers.
"""
# mypy: no-warn-return-any

from __future__ import annotations

from dataclasses import MISSING, field
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.contract.json_text import JsonText
from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Portion, Text, Whole
from delayq.contract.kubernetes import KubernetesType
from delayq.contract.record import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    from delayq.contract.kinds import Kind

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")

REQUIRED: Any = MISSING
"""The default of a field that has none."""


def _declare(kind: Kind, default: object, doc: str, *, immutable: bool = False) -> Any:  # noqa: ANN401 - as dataclasses.field
    metadata = {"kind": kind, "doc": doc, "required": default is REQUIRED, "immutable": immutable}
    return field(default=default, metadata=metadata)


def whole(low: int, high: int, *, doc: str, default: int | None = REQUIRED) -> int:
    """Declare a whole number within bounds."""
    return _declare(Whole(low, high), default, doc)


def portion(low: int, high: int, *, doc: str, default: int | str | None = REQUIRED) -> int | str:
    """Declare a whole number of pods, or a percentage."""
    return _declare(Portion(low, high), default, doc)


def text(kind: Text, *, doc: str, default: str | None = REQUIRED, immutable: bool = False) -> str:
    """Declare text of one of the kinds in words.py."""
    return _declare(kind, default, doc, immutable=immutable)


def choice(*options: T, doc: str, default: T = REQUIRED) -> T:
    """Declare an enumeration."""
    return _declare(Choice(tuple(map(str, options))), default, doc)


def constant(value: T, *, doc: str) -> T:
    """Declare a constant that a document must contain, but Python code need not."""
    kind = Choice((str(value),))
    return field(default=value, metadata={"kind": kind, "doc": doc, "required": True})


def flag(*, doc: str, default: bool = REQUIRED) -> bool:
    """Declare true or false."""
    return _declare(Flag(), default, doc)


def section(record: type[R], *, doc: str, default: R | None = REQUIRED, immutable: bool = False) -> R:
    """Declare a mapping with fields of its own."""
    return _declare(Section(record), default, doc, immutable=immutable)


def sections(
    record: type[R], *, doc: str, least: int, most: int, default: tuple[R, ...] = REQUIRED
) -> tuple[R, ...]:
    """Declare a list of mappings."""
    return listing(Section(record), doc=doc, least=least, most=most, default=default)


def listing(
    item: Kind, *, doc: str, least: int, most: int, default: tuple[T, ...] | None = REQUIRED
) -> tuple[T, ...]:
    """Declare a list of plain values."""
    return _declare(Listing(item=item, least=least, most=most), default, doc)


def dictionary(*, name: Text, value: Text, most: int, doc: str) -> Mapping[str, str]:
    """Declare a map from text to text, empty when absent."""
    kind = Dictionary(name=name, value=value, most=most)
    return field(default_factory=dict, metadata={"kind": kind, "doc": doc, "required": False})


def optional_dictionary(*, name: Text, value: Text, most: int, doc: str) -> Mapping[str, str] | None:
    """Declare a map from text to text, None when absent."""
    return _declare(Dictionary(name=name, value=value, most=most), None, doc)


def sections_by_name(record: type[R], *, name: Text, most: int, doc: str) -> Mapping[str, R] | None:
    """Declare a map from text to mappings with fields of their own, None when absent."""
    return _declare(Dictionary(name=name, value=Section(record), most=most), None, doc)


def json_text(*, doc: str) -> str | None:
    """Declare JSON as text, None when absent."""
    return _declare(JsonText(), None, doc)


def pod_template() -> Mapping[str, object] | None:
    """Declare a pod template, None when absent."""
    return _declare(KubernetesType("PodTemplateSpec"), None, "Pod template, merged over the operator's own.")

"""Mappings with named fields: declared once on a dataclass, read and written generically.

A field's declaration (kind, default, sentence) drives the parser, the reference and the CRD's test.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from operator import le
from typing import TYPE_CHECKING, ClassVar, Final, cast

from delayq.contract.kinds import Kind
from delayq.contract.problems import INVALID, quote, show, type_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from delayq.contract.problems import Place

UNKNOWN_SHOWN: Final = 20
"""Unknown fields reported one by one in a mapping; the rest are counted. Known ones are listed if they are no more."""
FIELDS_NAMED: Final = 5
"""Fields up to which an error names those of a mapping that was expected."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about several fields: `holds` gets their values, in this order."""

    message: str
    reads: tuple[str, ...]
    holds: Callable[..., bool]
    cel: str
    """The same for the API server: it evaluates the rule before defaults are stored within the mapping, too."""
    wrong: Callable[..., Sequence[str]] | None = None
    """What breaks the rule, for the error message."""


def without(wrong: Callable[..., Sequence[str]], message: str, *reads: str, cel: str) -> Rule:
    """Return a rule that holds where `wrong` returns nothing of the values of these fields."""
    return Rule(message, reads, lambda *values: not wrong(*values), cel, wrong)


def exclusive(one: str, other: str) -> Rule:
    """At most one of two fields."""
    return Rule(
        f"{camel(one)} and {camel(other)} exclude each other",
        (one, other),
        lambda a, b: a is None or b is None,
        f"!has(self.{camel(one)}) || !has(self.{camel(other)})",
    )


def needing(one: str, other: str) -> Rule:
    """A field that means nothing without another."""
    return Rule(
        f"{camel(one)} needs {camel(other)}",
        (one, other),
        lambda a, b: a is None or b is not None,
        f"!has(self.{camel(one)}) || has(self.{camel(other)})",
    )


def ordered(less: str, more: str) -> Rule:
    """Two numbers, the first of which is not the greater one."""
    return Rule(
        f"{camel(less)} must not exceed {camel(more)}",
        (less, more),
        le,
        f"self.{camel(less)} <= self.{camel(more)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The rules for a mapping as a whole: the `SHAPE` of its class."""

    one_of: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    ignored: tuple[str, ...] = ()
    open: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    """Fields of version 0.6, and what to do instead, for the error message."""
    atomic: bool = False
    """Whether two server-side appliers never mix one's fields with the other's."""
    changes: tuple[tuple[str, str], ...] = ()
    """Rules about a change, as message and CEL: only the API server sees two versions of a document."""

    @property
    def one_of_message(self) -> str:
        """Describe the choice in the same words as the CRD."""
        return f"expected exactly one of {', '.join(map(camel, self.one_of))}"


ANY_SHAPE: Final = Shape()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One field of a record: `name` in the document, `attribute` in Python."""

    attribute: str
    name: str
    kind: Kind
    doc: str
    required: bool
    default: object
    """Default value; None without a default."""
    immutable: bool = False
    """Whether the API server refuses another value."""


@dataclass(frozen=True, slots=True)
class Section(Kind):
    """A mapping whose fields a dataclass declares."""

    record: type[DataclassInstance]
    expected: ClassVar[str] = "a mapping"

    def read(self, value: object, place: Place) -> object:
        """Parse the mapping, and collect all problems."""
        if not isinstance(value, Mapping):
            names = [field.name for field in declared(self.record)]
            of = f" of {', '.join(names)}" if len(names) <= FIELDS_NAMED else ""
            return place.refuse(f"expected {self.expected}{of}, got {type_name(value)}")
        return read_record(self.record, value, place)

    def write(self, value: object) -> object:
        """Render the mapping in full, defaults included."""
        return write_record(cast("DataclassInstance", value))


def camel(attribute: str) -> str:
    """Turn a Python name into the document's: lease_duration_seconds -> leaseDurationSeconds."""
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)


def shape_of(record: type[DataclassInstance]) -> Shape:
    """Return the rules for the mapping as a whole."""
    return cast("Shape", getattr(record, "SHAPE", ANY_SHAPE))


@cache
def declared(record: type[DataclassInstance]) -> tuple[Declared, ...]:
    """List the fields of a record in the order they are declared."""
    found = []
    for entry in fields(record):
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        default = None if default is MISSING else default
        found.append(
            Declared(attribute=entry.name, name=camel(entry.name), default=default, **entry.metadata)
        )
    return tuple(found)


def read_record(record: type[DataclassInstance], value: Mapping[object, object], place: Place) -> object:
    """Parse every field, then check the mapping as a whole. Collects problems, raises nothing."""
    before = len(place.problems)
    _refuse_unknown(record, value, place)
    # Most fields of most mappings are absent: the dataclass has their defaults.
    found = {
        field.attribute: _read_field(field, value, place)
        for name, required, field in _by_name(record)
        if required or value.get(name) is not None
    }
    _check_one_of(shape_of(record), value, place)
    for rule, reads, defaults in _rules(record):
        if reads is None or not reads.isdisjoint(found):
            _check_rule(rule, [found.get(name, default) for name, default in defaults], place)
    return record(**found) if len(place.problems) == before else INVALID


@cache
def _by_name(record: type[DataclassInstance]) -> tuple[tuple[str, bool, Declared], ...]:
    """Return the fields, each with its name and whether it is required."""
    return tuple((field.name, field.required, field) for field in declared(record))


@cache
def _rules(
    record: type[DataclassInstance],
) -> tuple[tuple[Rule, frozenset[str] | None, tuple[tuple[str, object], ...]], ...]:
    """Return the rules, each with the fields that it reads, and their defaults.

    A rule that holds for the defaults need not be checked if none of these fields is given; for others, None.
    """
    fields = {field.attribute: field for field in declared(record)}
    found = []
    for rule in shape_of(record).rules:
        read = [fields[name] for name in rule.reads]
        holds = not any(field.required for field in read) and rule.holds(*(field.default for field in read))
        defaults = tuple((field.attribute, field.default) for field in read)
        found.append((rule, frozenset(rule.reads) if holds else None, defaults))
    return tuple(found)


def _read_field(field: Declared, value: Mapping[object, object], place: Place) -> object:
    # The API server treats null as absent. YAML has null for `worker:` without a value.
    given, kind = value.get(field.name), field.kind
    if given is None:
        return place.field(field.name).refuse("required, but missing")
    if type(kind).read is Kind.read and kind.fits(given):
        return given  # the usual case, which needs no path
    return kind.read(given, place.field(field.name))


def _check_one_of(shape: Shape, value: Mapping[object, object], place: Place) -> None:
    if not shape.one_of:
        return
    given = [camel(option) for option in shape.one_of if value.get(camel(option)) is not None]
    if len(given) != 1:
        place.refuse(f"{shape.one_of_message}, got {' and '.join(given) or 'nothing'}")


def _check_rule(rule: Rule, values: Sequence[object], place: Place) -> None:
    if INVALID not in values and not rule.holds(*values):
        place.refuse(f"{rule.message}: got {', '.join(rule.wrong(*values))}" if rule.wrong else rule.message)


def _refuse_unknown(record: type[DataclassInstance], value: Mapping[object, object], place: Place) -> None:
    shape = shape_of(record)
    if shape.open or value.keys() <= _known(record):
        return
    for old, advice in (each for each in shape.renamed if each[0] in value):
        place.field(old).refuse(f"gone since version 0.7: {advice}")
    expected = {*_known(record), *shape.ignored, *(old for old, _ in shape.renamed)}
    known = [field.name for field in declared(record)]
    refuse_unknown([key for key in value if key not in expected], known, place)


@cache
def _known(record: type[DataclassInstance]) -> frozenset[object]:
    """Return the names of the fields."""
    return frozenset(field.name for field in declared(record))


def refuse_unknown(unknown: list[object], known: list[str], place: Place) -> None:
    """Report each unknown field with the nearest known one; if there are many, report their number."""
    for key in unknown[:UNKNOWN_SHOWN]:
        _refuse_field(key, known, place)
    if len(unknown) > UNKNOWN_SHOWN:
        place.refuse(f"{len(unknown) - UNKNOWN_SHOWN} more unknown fields")


def _refuse_field(key: object, known: list[str], place: Place) -> None:
    if not isinstance(key, str):
        place.refuse(f"expected field names to be text, got {show(key)}")
        return
    near = _nearest(key, known)
    few = f", expected {' or '.join(known) or 'none here'}" if len(known) <= UNKNOWN_SHOWN else ""
    name = key if key.isidentifier() and quote(key) == f'"{key}"' else quote(key)
    place.field(name).refuse(f"unknown field, did you mean {near}?" if near else f"unknown field{few}")


def _nearest(key: str, known: list[str]) -> str | None:
    """Return the nearest known name: maxAttempts for max_attempts and MaxAttempts."""
    by_sound = {_sound(name): name for name in known}
    near = difflib.get_close_matches(_sound(key), by_sound, n=1)
    return by_sound[near[0]] if near else None


def _sound(name: str) -> str:
    return name[:64].replace("_", "").replace("-", "").lower()


def write_record(value: DataclassInstance) -> dict[str, object]:
    """Render a record as the document would hold it, leaving out what is absent."""
    present = ((field, getattr(value, field.attribute)) for field in declared(type(value)))
    return {field.name: field.kind.write(item) for field, item in present if item is not None}

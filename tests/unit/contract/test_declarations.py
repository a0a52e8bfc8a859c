"""Every dataclass of the model declares what it means."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Literal, Union, get_args, get_origin, get_type_hints

from delayq.contract.kinds import Choice, Dictionary, Listing
from delayq.contract.problems import Place
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Section, declared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance

    Record = type[DataclassInstance]


def records(record: Record = DelayQueue) -> Iterator[Record]:
    yield record
    for field in declared(record):
        inner = field.kind
        if isinstance(inner, Listing | Dictionary):
            inner = inner.item if isinstance(inner, Listing) else inner.value
        if isinstance(inner, Section):
            yield from records(inner.record)


RECORDS = sorted(set(records()), key=lambda record: record.__name__)


def test_annotations_have_every_option_and_say_what_may_be_absent() -> None:
    """mypy compares the rest with what declares the field."""
    for record in RECORDS:
        hints = get_type_hints(record, localns={"Mapping": Mapping})
        for field in declared(record):
            hint = hints[field.attribute]
            options = set(get_args(hint)) if get_origin(hint) in {types.UnionType, Union} else {hint}
            absent = not field.required and field.default is None
            assert (types.NoneType in options) == absent, (record, field.attribute)
            if isinstance(field.kind, Choice) and field.kind.options[1:]:
                assert Literal[field.kind.options] in options, (record, field.attribute)


def test_records_are_frozen_slotted_and_explained() -> None:
    for record in RECORDS:
        assert is_dataclass(record)
        assert "__dict__" not in dir(record)
        assert (record.__doc__ or "").endswith("."), record
        assert all(field.kw_only for field in fields(record)), record
        for field in declared(record):
            assert field.doc.endswith("."), (record, field.name)
            assert field.doc[0].isupper(), (record, field.name)


def test_defaults_are_values_that_the_document_could_have_said() -> None:
    for field in (each for record in RECORDS for each in declared(record)):
        if field.default is not None:
            place = Place("here", [])
            assert field.kind.read(field.kind.write(field.default), place) == field.default
            assert place.problems == []

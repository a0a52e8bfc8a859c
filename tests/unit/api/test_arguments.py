"""What the HTTP API refuses by what workers publish. It has to take all that the App takes."""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from delayq import App
from delayq.api.arguments import Accepted
from delayq.app import accepted as descriptions
from delayq.app import arguments
from delayq.app.accepted import described
from delayq.app.arguments import InvalidArguments
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    OnErrorOmit,
    PlainValidator,
    RootModel,
    SecretStr,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from delayq.app import TaskKind


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Text(StrEnum):
    A = "a"


class Level(IntEnum):
    LOW = 1


class Lenient(Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:  # noqa: ARG003 -- of Enum
        return cls.A


@dataclass
class Point:
    x: int
    y: float = 0.0


class Pair(NamedTuple):
    a: int
    b: str = ""


class Address(BaseModel):
    city: str
    zip: Annotated[str, Field(pattern="^[0-9]+$")] = "1"


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: list[str] = []


class Coerced(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    a: str
    inner: Address | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    order: int = Field(alias="Order")


class Cleaned(BaseModel):
    a: int

    @model_validator(mode="before")
    @classmethod
    def any(cls, value: object) -> object:
        return value if isinstance(value, dict) and "a" in value else {"a": 1}

    @field_validator("a", mode="before")
    @classmethod
    def of(cls, value: object) -> object:
        return value if isinstance(value, int) else 1


class Own(BaseModel):
    a: int

    def __init__(self, **_: object) -> None:
        super().__init__(a=1)


class Filled(BaseModel):
    a: Annotated[int, Field(default=1, validate_default=True)]
    b: Annotated[int, BeforeValidator(lambda value: value)] = 2


class Tree(BaseModel):
    value: int
    children: list[Tree] = []
    beside: Tree | Point | None = None


class Many(RootModel[list[int]]):
    pass


class Options(TypedDict, total=False):
    retries: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Either = Annotated[
    Annotated[Cat, Tag("c")] | Annotated[int, Tag("i")],
    Discriminator(lambda value: "i" if isinstance(value, int) else "c"),
]
ANNOTATIONS: list[Any] = [
    *(int, float, bool, str, bytes, None, Any, object, list, dict, complex),
    *(Decimal, UUID, AnyUrl, SecretStr, date, datetime, time, timedelta),
    *(list[int], set[str], frozenset[int], tuple[int, str], tuple[int, ...], deque[int]),
    *(dict[str, int], dict[int, str]),
    *(int | None, int | str, list[int] | int | None, Literal["a", "b"], Literal["a", 1], Literal[Text.A]),
    Literal[True],
    *(Colour, Text, Level, Lenient, Point, Pair, Address, Closed, Coerced, Aliased, Cleaned, Filled, Tree),
    *(Many, Options, Own, list[OnErrorOmit[int]]),
    *(Pet, Either, list[Pet], Json[int], Json),
    Annotated[int, BeforeValidator(lambda _: 1)],
    Annotated[int, PlainValidator(lambda _: 1), WithJsonSchema({"type": "integer"})],
    Annotated[int, AfterValidator(lambda value: value), Field(ge=1)],
    Annotated[str, WithJsonSchema({"type": "integer"})],
    Annotated[str, Field(coerce_numbers_to_str=True)],
    Annotated[int, Field(strict=True)],
]  # fmt: skip


def kind_of(annotation: Any, *, batch: bool = False) -> TaskKind[..., Any]:  # noqa: ANN401
    def one(a: Any, b: Any = None) -> None:  # noqa: ANN401
        """Take one."""

    def several(items: Any) -> None:  # noqa: ANN401
        """Take items."""

    one.__annotations__ = {"a": annotation, "b": Any}
    several.__annotations__ = {"items": list[annotation]}
    app: Any = App()
    return app.task(batch=2)(several) if batch else app.task(one)  # type: ignore[no-any-return]


def accepted(kind: TaskKind[..., Any]) -> Accepted:
    """What reaches the API: JSON."""
    return Accepted(json.loads(json.dumps(described(kind).accepts)))


@cache
def kinds() -> list[tuple[TaskKind[..., Any], Accepted]]:
    """A kind of each annotation, and one of batches."""
    found = [kind_of(each, batch=batch) for each in ANNOTATIONS for batch in (False, True)]
    return [(kind, accepted(kind)) for kind in found]


WORDS_OF_TYPES = (
    *("a", "b", "red", "cat", "dog", "7", "7.0", " 1_0", "inf", "-Infinity", "NaN", "yes", "2026-01-02", "PT1S", "YQ==",
     "2026-01-02T03:04:05Z", "03:04", "http://a.example/", "9c6ee1a1-6b8a-4b6e-9a39-6a4f0f3b1c11", "", "1+2j", "[]",
     "1"),
)  # fmt: skip
WORDS = st.sampled_from(WORDS_OF_TYPES)
NAMES = st.sampled_from(
    ["a", "b", "x", "y", "city", "zip", "order", "Order", "value", "children", "beside", "kind", "lives", "name",
     "retries"]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | WORDS | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=8,
)


def refused(payload: object) -> list[str]:
    """What is refused although the App takes it."""
    found, text = [], json.dumps(payload).encode()
    for kind, each in kinds():
        if (problem := each.problem(payload)) is not None:
            with suppress(InvalidArguments):
                kind.codec.decode(text)
                found.append(f"{kind.codec} {payload}: {problem}")
    return found


@given(JSON | st.fixed_dictionaries({"a": JSON}, optional={"b": JSON}))
def test_what_the_app_takes_is_never_refused(payload: object) -> None:
    assert refused(payload) == []


def test_no_value_that_pydantic_converts_is_refused() -> None:
    """Each word and number as an argument, as an item, and inside a list, an object and a model."""
    value: Any
    for value in (*WORDS_OF_TYPES, None, True, 0, 1, 7, 7.0, 1.5, -1, 10**30, [], {}):
        for payload in (
            value,
            [value],
            {"a": value},
            {"value": value, "children": [{"value": value}]},
            {"x": value},
        ):
            assert refused(payload) == []
            assert refused({"a": payload}) == []


SHOP = App()


@SHOP.task
def remind(
    order: int,
    *,
    address: Address | None = None,
    lines: list[Point] | None = None,
    colour: Colour = Colour.RED,
) -> None:
    """A kind as users write it."""


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (None, "payload: expected an object, got null"),
        ([1], "payload: expected an object, got a list"),
        ({}, "payload.order: required, but missing"),
        ({"order": "seven"}, "payload.order: expected a number, got text"),
        ({"order": None}, "payload.order: expected a number, got null"),
        ({"order": 7, "colur": "red"}, "payload.colur: unknown field, did you mean colour?"),
        ({"order": 7, "\n": 1}, r"payload.\n: unknown field"),
        ({"order": 7, "colour": "green"}, 'payload.colour: expected one of "red", "blue", got text'),
        ({"order": 7, "address": "Kiel"}, "payload.address: expected null or an object, got text"),
        ({"order": 7, "address": {"zip": "24103"}}, "payload.address.city: required, but missing"),
        ({"order": 7, "lines": [{"x": 1}, {"x": []}]}, "payload.lines[1].x: expected a number, got a list"),
    ],
)
def test_what_fits_no_argument_is_refused_with_its_path(payload: object, problem: str) -> None:
    """And without its value, which may be secret."""
    assert str(accepted(remind).problem(payload)) == problem


def test_without_pydantic_names_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the App then: it passes on values as they are."""
    monkeypatch.setattr(arguments, "VALIDATES", False)
    monkeypatch.setattr(descriptions, "VALIDATES", False)
    app = App()

    @app.task
    def plain(order: int, *, reason: str = "") -> None:
        """One kind."""

    @app.task(batch=2)
    def items(each: list[int]) -> None:
        """Another one."""

    assert described(items) == (None, None)
    found = accepted(plain)
    assert found.problem({"order": "seven"}) is None
    assert str(found.problem({"reason": ""})) == "payload.order: required, but missing"
    assert str(found.problem({"order": 1, "x": 1})) == "payload.x: unknown field"


def test_a_type_that_cannot_describe_itself_is_not_checked() -> None:
    """It is users' code: whatever it raises, the worker starts."""

    class Broken:
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: object) -> dict[str, Any]:
            return {"type": "any"}

        @classmethod
        def __get_pydantic_json_schema__(cls, *_: object) -> dict[str, Any]:
            if cls.breaks:
                raise ZeroDivisionError
            return {"type": "integer"}

        breaks = False

    kind = kind_of(Broken)
    Broken.breaks = True
    found = described(kind)
    assert found.schema is None
    assert Accepted(found.accepts).problem({"a": 1}) is None


@pytest.mark.parametrize(
    "text",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        *({"pattern": "(a*)*b"}, {"format": "date"}, {"type": ["string"], "minLength": 9}),
    ],
)  # fmt: skip
def test_what_another_program_has_written_refuses_nothing(text: dict[str, Any]) -> None:
    """Nor does it take longer than it should: of patterns, only those of delayq are used."""
    assert Accepted(text).problem("a" * 60) is None


def test_the_time_is_bounded_by_the_size_of_the_payload() -> None:
    """Each level has two choices that would fit: to try them all would take 2^60 looks."""
    node: dict[str, Any] = {
        "type": ["object"],
        "properties": {"a": {"$ref": "#/$defs/node"}},
        "required": ["b"],
    }
    text = {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [node, node]}}}
    payload: dict[str, Any] = {}
    for _ in range(60):
        payload = {"a": payload}
    assert Accepted(text).problem(payload) is None

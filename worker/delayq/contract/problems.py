"""The problems of a document, described so that its author can correct them.

No secret is ever quoted: where a value could be one, only its type is named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN: Final = 60
"""Longest quotation of a document in a message, in characters."""

_NUMBER_SHOWN: Final = 10**18

_TYPE_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
}


class Invalid(Enum):
    """Replaces an invalid value; the reason is in the list of problems."""

    INVALID = "invalid"


INVALID: Final[Literal[Invalid.INVALID]] = Invalid.INVALID


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in the document: its path, and the expected value."""

    path: str
    message: str

    def __str__(self) -> str:
        """Return one line, to print after a file name."""
        return f"{self.path}: {self.message}"


class SpecError(DelayQError, ValueError):
    """Fields of a document are not valid; all of them are listed, in the order of the document."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """The message has one line for each problem."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True)
class Place:
    """The path of a value in the document, and the list that collects problems."""

    path: str
    problems: list[Problem]

    def field(self, name: str) -> Place:
        """Go to a named field of this mapping."""
        return Place(f"{self.path}.{name}" if self.path else name, self.problems)

    def item(self, index: int) -> Place:
        """Go to one item of this list."""
        return Place(f"{self.path}[{index}]", self.problems)

    def key(self, key: str) -> Place:
        """Go to a value of this map, whose keys the author chooses."""
        return Place(f"{self.path}[{quote(key)}]", self.problems)

    def refuse(self, message: str) -> Literal[Invalid.INVALID]:
        """Add a problem with this path."""
        self.problems.append(Problem(self.path or "document", message))
        return INVALID


def quote(text: str) -> str:
    """Quote text, shortened and safe to print on any terminal."""
    escaped = json.dumps(text[:SHOWN], ensure_ascii=not text.isprintable())
    return escaped if len(escaped) <= SHOWN else f'{escaped[: SHOWN - 4]}..."'


def type_name(value: object) -> str:
    """Return the type of a value, without quoting it."""
    return _TYPE_NAMES.get(type(value), type(value).__name__[:SHOWN])


def show(value: object) -> str:
    """Quote a value, shortened for a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _NUMBER_SHOWN else "a huge number"
    if isinstance(value, float):
        return repr(value)
    return type_name(value)

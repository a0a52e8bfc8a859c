"""The kinds of value a field can hold: each says what it expects, reads it, and writes it back.

Not here: mappings with fields of their own (record.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from delayq.contract.freeform import Freeform
from delayq.contract.problems import INVALID, show, type_name

if TYPE_CHECKING:
    from delayq.contract.problems import Place

__all__ = ["Choice", "Dictionary", "Flag", "Freeform", "Kind", "Listing", "Portion", "Text", "Whole", "plain"]


class Kind(Protocol):
    """What a field needs to know of its values."""

    @property
    def expected(self) -> str:
        """What is wanted, to follow the word "expected"."""

    def read(self, value: object, place: Place) -> object:
        """Return the value as the model holds it, or INVALID with the problem noted."""

    def write(self, value: object) -> object:
        """Return the value as the document holds it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both allowed."""

    low: int
    high: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object, place: Place) -> object:
        """Take an int; true and 1.0 are not whole numbers here."""
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        return place.refuse(f"expected {self.expected}, got {show(value)}")

    def write(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True)
class Portion:
    """Some of the pods: a whole number or a percentage, as Kubernetes' IntOrString."""

    low: int
    high: int
    pattern: str = "^([1-9][0-9]?|100)%$"

    @property
    def expected(self) -> str:
        return f'a whole number from {self.low} to {self.high}, or a percentage such as "50%"'

    def read(self, value: object, place: Place) -> object:
        """Take an int within bounds, or text such as "50%"."""
        if isinstance(value, str):
            fits = re.fullmatch(self.pattern, value) is not None
        else:
            fits = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        return value if fits else place.refuse(f"expected {self.expected}, got {show(value)}")

    def write(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text of a bounded length, of a pattern when one is given.

    A quiet text may hold a secret put there by mistake: errors name its type only.
    """

    expected: str
    max_length: int
    min_length: int = 1
    pattern: str | None = None
    quiet: bool = False

    def read(self, value: object, place: Place) -> object:
        """Take text that fits; patterns are anchored, so a trailing newline does not slip through."""
        if isinstance(value, str) and self.fits(value):
            return str(value)
        return place.refuse(f"expected {self.expected}, got {self._shown(value)}")

    def _shown(self, value: object) -> str:
        # A URL with a password may stand where only a host belongs.
        quiet = self.quiet or (isinstance(value, str) and "@" in value)
        return type_name(value) if quiet else show(value)

    def fits(self, text: str) -> bool:
        """Tell whether a document takes the text."""
        return (
            self.min_length <= len(text) <= self.max_length
            and (self.pattern is None or re.fullmatch(self.pattern, text) is not None)
            and plain(text)
        )

    def write(self, value: object) -> object:
        return value


def plain(text: str) -> bool:
    """Tell whether the text can be stored as UTF-8, which a lone surrogate cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        if len(self.options) == 1:
            return self.options[0]
        return f"one of {', '.join(self.options)}"

    def read(self, value: object, place: Place) -> object:
        """Take the word exactly as it is written in the options."""
        if isinstance(value, str) and value in self.options:
            return str(value)
        return place.refuse(f"expected {self.expected}, got {show(value)}")

    def write(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """Either true or false; not 0, 1, "yes" or "no"."""

    expected: str = "true or false"

    def read(self, value: object, place: Place) -> object:
        """Take a boolean and nothing like it."""
        if isinstance(value, bool):
            return value
        return place.refuse(f"expected {self.expected}, got {show(value)}")

    def write(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list whose items are all of one kind; a tuple in the model."""

    item: Kind
    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"a list of {self.least} to {self.most} items"

    def read(self, value: object, place: Place) -> object:
        """Take the list, reading no item of one that is too long."""
        if not isinstance(value, list | tuple):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")
        if not self.least <= len(value) <= self.most:
            return place.refuse(f"expected {self.expected}, got {len(value)}")
        items = tuple(self.item.read(item, place.item(index)) for index, item in enumerate(value))
        return INVALID if INVALID in items else items

    def write(self, value: object) -> object:
        return [self.item.write(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary:
    """A map from names of the author's choosing to values of one kind."""

    name: Text
    value: Kind
    most: int

    @property
    def expected(self) -> str:
        return f"a mapping of at most {self.most} entries"

    def read(self, value: object, place: Place) -> object:
        """Take the map, reading no entry of one that is too large."""
        if not isinstance(value, Mapping):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")
        if len(value) > self.most:
            return place.refuse(f"expected {self.expected}, got {len(value)}")
        pairs = [(self._name(key, place), self._entry(key, item, place)) for key, item in value.items()]
        return INVALID if any(INVALID in pair for pair in pairs) else dict(pairs)

    def _name(self, key: object, place: Place) -> object:
        return self.name.read(key, place)

    def _entry(self, key: object, item: object, place: Place) -> object:
        return self.value.read(item, place.key(key)) if isinstance(key, str) else INVALID

    def write(self, value: object) -> object:
        """Copy, so that the model stays as it was read."""
        return dict(value) if isinstance(value, Mapping) else value

"""The types of field values: each describes, parses and renders its values.

Not here: mappings with fields of their own (record.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq.contract.problems import INVALID, show, type_name

if TYPE_CHECKING:
    from delayq.contract.problems import Place


class Kind:
    """The type of a field's values. Simple kinds define only `expected` and `fits`."""

    __slots__ = ()

    if TYPE_CHECKING:  # at run time, dataclasses would treat it as the default of a field of that name

        @property
        def expected(self) -> str:
            """Describes valid values, after the word "expected" in messages."""

    def fits(self, value: object) -> bool:
        """Whether the value is valid."""
        raise NotImplementedError

    def read(self, value: object, place: Place) -> object:
        """Parse the value; INVALID, with a recorded problem, otherwise."""
        if self.fits(value):
            return value
        return place.refuse(f"expected {self.expected}, got {self.shown(value)}")

    def write(self, value: object) -> object:
        """Return the value as in a document."""
        return value

    def shown(self, value: object) -> str:
        """Return the error message for an invalid value."""
        return show(value)


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number between two bounds, inclusive; true and 1.0 are invalid."""

    low: int
    high: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def fits(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Portion(Kind):
    """Some of the pods: a whole number or a percentage, as Kubernetes' IntOrString."""

    low: int
    high: int
    pattern: str = "^([1-9][0-9]?|100)%$"

    @property
    def expected(self) -> str:
        return f'a whole number from {self.low} to {self.high}, or a percentage such as "50%"'

    def fits(self, value: object) -> bool:
        if isinstance(value, str):
            return re.fullmatch(self.pattern, value) is not None
        return Whole(self.low, self.high).fits(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Kind):
    """Text of a bounded length, of a pattern when one is given.

    A `quiet` text may contain a secret by mistake: errors name only its type. `hint` says what to do about an invalid
    value that it allows, and that is no secret; it returns "" for others.
    """

    expected: str
    max_length: int
    min_length: int = 1
    pattern: str | None = None
    quiet: bool = False
    hint: Callable[[str], str] | None = None

    def fits(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and self.min_length <= len(value) <= self.max_length
            and (self.pattern is None or re.fullmatch(self.pattern, value) is not None)
            and plain(value)
        )

    def shown(self, value: object) -> str:
        if self.hint is not None and isinstance(value, str) and (hint := self.hint(value)):
            return f"{show(value)}: {hint}"
        # A user may enter a URL with a password instead of a host.
        quiet = self.quiet or (isinstance(value, str) and "@" in value)
        return type_name(value) if quiet else show(value)


def plain(text: str) -> bool:
    """Whether the text is valid Unicode, without lone surrogates."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """An enumeration, case-sensitive."""

    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        return self.options[0] if len(self.options) == 1 else f"one of {', '.join(self.options)}"

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and value in self.options


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """Either true or false; not 0, 1, "yes" or "no"."""

    expected: str = "true or false"

    def fits(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Kind):
    """A list whose items are all of one kind; a tuple in the model."""

    item: Kind
    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"a list of {self.least} to {self.most} items"

    def read(self, value: object, place: Place) -> object:
        """Parse the list; the items of a list that is too long are not parsed."""
        if not isinstance(value, list | tuple):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")
        if not self.least <= len(value) <= self.most:
            return place.refuse(f"expected {self.expected}, got {len(value)}")
        before = len(place.problems)
        items = tuple(self.item.read(item, place.item(index)) for index, item in enumerate(value))
        return INVALID if len(place.problems) > before else items

    def write(self, value: object) -> object:
        return [self.item.write(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary(Kind):
    """A map with arbitrary keys and values of one kind."""

    name: Text
    value: Kind
    most: int

    @property
    def expected(self) -> str:
        return f"a mapping of at most {self.most} entries"

    def read(self, value: object, place: Place) -> object:
        """Parse the map; the entries of a map that is too large are not parsed."""
        if not isinstance(value, Mapping):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")
        if len(value) > self.most:
            return place.refuse(f"expected {self.expected}, got {len(value)}")
        pairs = [(self.name.read(key, place), self._entry(key, item, place)) for key, item in value.items()]
        return INVALID if any(INVALID in pair for pair in pairs) else dict(pairs)

    def _entry(self, key: object, item: object, place: Place) -> object:
        return self.value.read(item, place.key(key)) if isinstance(key, str) else INVALID

    def write(self, value: object) -> object:
        """Return a copy, so that callers cannot change the model."""
        if not isinstance(value, Mapping):
            return value
        return {name: self.value.write(item) for name, item in value.items()}

"""Checks arguments by what workers have published (delayq.app.accepted). No I/O.

It understands the few words of JSON Schema that workers publish, and lets pass what it does not understand. The text
comes from Redis, where another program may have written anything: only patterns that delayq writes are used, and each
value of a payload is looked at once. jsonschema-rs is as fast, and takes 15 MB of the 60 MB of an idle API.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.problems import Problem, quote, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "null": ((NoneType,), "null"),
    "boolean": ((bool,), "true or false"),
    "number": ((int, float), "a number"),
    "string": ((str,), "text"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
}
_EVERY: Final = frozenset(each for types, _ in _TYPES.values() for each in types)
_PATTERNS: Final = {text: re.compile(text) for text in ("[0-9]", "[0-9]|[iI][nN][fF]|[nN][aA][nN]")}
_REF: Final = "#/$defs/"
_MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 100  # to look for one like it


class Accepted:
    """What a payload may be."""

    def __init__(self, text: Any) -> None:  # noqa: ANN401 -- JSON, of anyone who may write to Redis
        """TypeError, ValueError, LookupError or AttributeError if the text is not what a worker publishes."""
        definitions = {name: _Node() for name in text.get("$defs", {})}
        made = [(node, text["$defs"][name]) for name, node in definitions.items()]
        self._root = _Node()
        nodes = [self._root, *definitions.values()]
        for node, each in ((self._root, text), *made):
            node.fill(each, definitions, nodes)
        for node in nodes:
            node.finish()

    def problem(self, payload: object) -> Problem | None:
        """Return the first thing that is wrong with a payload, without its values: they may be secret."""
        found = self._root.wrong(payload)
        if found is None:
            return None
        message, *path = found
        return Problem("payload" + "".join(reversed(path)), message)


class _Node:
    """What one value may be; all, as long as nothing is set."""

    __slots__ = (
        "choices",
        "closed",
        "expected",
        "items",
        "leaves",
        "pattern",
        "plain",
        "properties",
        "required",
        "rest",
        "types",
        "words",
    )

    def __init__(self) -> None:
        self.types, self.expected = _EVERY, ""
        self.words: frozenset[str] | None = None
        self.pattern: re.Pattern[str] | None = None
        self.choices: tuple[_Node, ...] = ()
        self.leaves: tuple[_Node, ...] = ()
        """The choices, and the choices of these: those that have none themselves."""
        self.properties: Mapping[str, _Node] = {}
        self.required: tuple[str, ...] = ()
        self.closed = False
        self.rest: _Node | None = None
        self.items: _Node | None = None
        self.plain = _EVERY
        """Types of which every value will do."""

    def fill(self, text: Any, known: Mapping[str, _Node], nodes: list[_Node]) -> None:  # noqa: ANN401 -- as above
        """Read what was published, and add the nodes inside of it to `nodes`."""

        def inner(of: Any) -> _Node:  # noqa: ANN401 -- as above
            nodes.append(made := _Node())
            made.fill(of, known, nodes)
            return made

        if "$ref" in text:
            self.choices = (known[text["$ref"].removeprefix(_REF)],)
        elif "anyOf" in text:
            self.choices = tuple(inner(each) for each in text["anyOf"])
        if "type" in text:
            self.types = frozenset(each for name in text["type"] for each in _TYPES[name][0])
            self.expected = " or ".join(_TYPES[name][1] for name in text["type"])
        if "enum" in text:
            self.types, self.words = frozenset((str,)), frozenset(text["enum"])
            self.expected = f"one of {', '.join(map(quote, text['enum'][:_MOST_NAMED]))}"
        self.pattern = _PATTERNS.get(text.get("pattern"))
        self.expected = self.expected if self.pattern is None else "a number"
        self.properties = {name: inner(each) for name, each in text.get("properties", {}).items()}
        self.required = tuple(text.get("required", ()))
        rest = text.get("additionalProperties", True)
        self.closed, self.rest = rest is False, inner(rest) if isinstance(rest, dict) else None
        self.items = inner(text["items"]) if "items" in text else None

    def finish(self) -> None:
        """Prepare what makes a look fast, once all nodes are filled."""
        waiting, seen = [self], list[_Node]()
        while waiting:
            each = waiting.pop(0)
            if each not in seen:
                seen.append(each)
                waiting += each.choices
        self.leaves = tuple(each for each in seen if not each.choices)
        if not self.leaves:  # it refers to itself alone
            return
        self.plain = frozenset(kind for each in self.leaves for kind in each.types if each.is_plain(kind))
        self.expected = " or ".join(dict.fromkeys(each.expected for each in self.leaves))

    def is_plain(self, kind: type) -> bool:
        """Whether every value of this type will do."""
        if kind is str:
            return self.words is None and self.pattern is None
        if kind is dict:
            return not (self.properties or self.required or self.closed or self.rest)
        return kind is not list or self.items is None

    def fits(self, value: Any) -> bool:  # noqa: ANN401 -- JSON
        """Whether the value fits by its type, not by what is inside."""
        kind = type(value)
        if kind is str and kind in self.types:
            if self.words is not None:
                return value in self.words
            return self.pattern is None or self.pattern.search(value) is not None
        return kind in self.types

    def wrong(self, value: Any) -> list[str] | None:  # noqa: ANN401 -- JSON
        """Return what is wrong, and the path to it from its end; None if nothing is."""
        kind = type(value)
        if kind in self.plain:
            return None
        fitting = [each for each in self.leaves if each.fits(value)]
        if not fitting:
            return [f"expected {self.expected}, got {type_name(value)}"]
        if fitting[
            1:
        ]:  # it is not known which one it is meant to be, and to try each one could take for ever
            return None
        if kind is dict:
            return fitting[0].wrong_inside(value)
        if kind is list and fitting[0].items is not None:
            return _wrong_item(value, fitting[0].items)
        return None

    def wrong_inside(self, value: Mapping[str, Any]) -> list[str] | None:
        """The same for an object."""
        for name in self.required:
            if name not in value:
                return ["required, but missing", f".{name}"]
        known = self.properties
        for name, each in value.items():
            node = known.get(name, self.rest)
            if node is None:
                if self.closed:
                    return [_unknown(name, known), f".{quote(name)[1:-1]}"]
            elif type(each) not in node.plain and (found := node.wrong(each)) is not None:
                return [*found, f".{name}"]
        return None


def _wrong_item(value: list[Any], node: _Node) -> list[str] | None:
    plain = node.plain
    for nth, each in enumerate(value):
        if type(each) not in plain and (found := node.wrong(each)) is not None:
            return [*found, f"[{nth}]"]
    return None


def _unknown(name: str, known: Mapping[str, _Node]) -> str:
    similar = get_close_matches(name, known, 1) if len(name) <= _LONGEST_NAME else ()
    return f"unknown field, did you mean {similar[0]}?" if similar else "unknown field"

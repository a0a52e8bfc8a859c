"""Trees of plain values, as YAML and JSON hold them: their bounds, and copies.

Depth, number of values and length are limited, because YAML anchors can describe an unbounded tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delayq.contract.problems import type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST: Final = 50
MOST_VALUES: Final = 20_000
MOST_CHARACTERS: Final = 65_536
"""In all keys and texts: the operator renders and compares each template in every reconciliation."""


def copy(value: object) -> object:
    """Copy a checked tree as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy(item) for item in value]
    return value


def complaint(tree: object) -> str | None:
    """Return what is wrong with a tree. There is no recursion: a deep tree cannot exhaust the stack."""
    waiting: list[tuple[object, int]] = [(tree, 1)]
    seen = characters = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST:
            return f"expected at most {DEEPEST} levels of nesting"
        if seen + len(waiting) > MOST_VALUES:
            return f"expected at most {MOST_VALUES} values"
        characters += _length(value)
        if characters > MOST_CHARACTERS:
            return f"expected at most {MOST_CHARACTERS:,} characters in all keys and texts"
        if not _is_json(value):
            return f"expected JSON values and text keys all the way down, got {type_name(value)}"
        waiting.extend((child, depth + 1) for child in _children(value))
    return None


def _children(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


def _length(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(len(key) for key in value if isinstance(key, str))
    return len(value) if isinstance(value, str) else 0


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | list | tuple)

"""JSON as text: the payload of a DelaySchedule, whose size and depth are checked before it is parsed.

Also the strict reading of JSON that requests and answers of the HTTP API have.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.kinds import Kind, plain
from delayq.contract.problems import type_name

if TYPE_CHECKING:
    from delayq.contract.problems import Place

MOST_BYTES: Final = 65_536
MOST_LEVELS: Final = 64
MOST_DIGITS: Final = 4_300
"""Python refuses to read more."""
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class JsonText(Kind):
    """Text that is JSON; the value of the field is the text."""

    expected: str = "JSON as text"

    def read(self, value: object, place: Place) -> object:
        """Return the text, if it is JSON."""
        if not isinstance(value, str):
            # Until 0.6, any value was the payload itself.
            return place.refuse(
                f"expected JSON as text, got {type_name(value)}: write `|`, and the JSON below it"
            )
        problem = _problem(value)
        return place.refuse(f"expected JSON as text, {problem}") if problem else value


def _problem(text: str) -> str:
    if not plain(text):
        return "got no valid Unicode"
    if (size := len(text.encode())) > MOST_BYTES:
        return f"at most {MOST_BYTES:,} bytes of it, got {size:,}"
    if _levels(text) > MOST_LEVELS:
        return f"of at most {MOST_LEVELS} levels"
    try:
        json.dumps(parsed(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "got an escape that is half a character, such as \\ud800"
    except ValueError as error:
        return f"got text that is none: {error}"
    return ""


def _levels(text: str) -> int:
    """Count without recursion and without parsing: Python 3.11 and 3.12 fail at about 1,000 levels."""
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return max(accumulate((1 if each in "[{" else -1 for each in brackets), initial=0))


def parsed(text: str) -> Any:  # noqa: ANN401 -- any JSON value
    """Parse JSON by RFC 8259: no NaN, no Infinity, no number beyond a float; ValueError otherwise."""
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def strict_json(content: bytes) -> Any:  # noqa: ANN401 -- as above
    """Parse JSON by RFC 8259: valid UTF-8, no NaN, no Infinity; ValueError otherwise."""
    if content.startswith(codecs.BOM_UTF8):
        raise ValueError("starts with a byte order mark (BOM): save it as UTF-8 without one")
    try:
        return parsed(content.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def is_deeper(value: object, most: int = MOST_LEVELS) -> bool:
    """Whether a parsed value has more levels. Of a large text this takes less time than to count its brackets."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits, expected at most {MOST_DIGITS:,}")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


_decode: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, parse_int=_whole).decode

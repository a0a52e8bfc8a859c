"""The values of plain YAML scalars and of JSON numbers as Kubernetes reads them. No YAML parser, no I/O.

kubectl reads YAML 1.1 without numbers of base 60, and then the API server JSON: `yes` is true, `017` and `0o17` are 15,
`1e3` is 1000, and `12:30:00` and dates are text.
"""

from __future__ import annotations

import math
import re
from typing import Final

Scalar = str | int | float | bool | None

LONGEST: Final = 66  # characters of a number of 64 bits. Python's time grows with the square of their number.
_WORDS: Final[dict[str, Scalar]] = {
    **{each: True for word in ("yes", "true", "on") for each in (word, word.capitalize(), word.upper())},
    **{each: False for word in ("no", "false", "off") for each in (word, word.capitalize(), word.upper())},
    **dict.fromkeys(("y", "Y"), True),
    **dict.fromkeys(("n", "N"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{f"{sign}.{word}": math.inf for word in ("inf", "Inf", "INF") for sign in ("", "+")},
    **{f"-.{word}": -math.inf for word in ("inf", "Inf", "INF")},
}
_WHOLE: Final = re.compile(r"[-+]?(0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_BASES: Final = {"0b": 2, "0o": 8, "0x": 16}
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FROM_POINT: Final = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
_INT64: Final = range(-(1 << 63), 1 << 63)
_UINT64: Final = range(1 << 64)


def plain(text: str) -> Scalar:
    """Return the value of a scalar that has neither quotes nor a tag; infinity and NaN, too."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-0123456789":
        return _number(text, text.replace("_", ""))
    return _decimal(text, text) if _FROM_POINT.fullmatch(text) else text


def _number(text: str, digits: str) -> Scalar:
    if _WHOLE.fullmatch(digits) and len(digits.lstrip("+-0")) <= LONGEST:
        unsigned = digits.lstrip("+-")
        value = int(digits, _BASES.get(unsigned[:2].lower(), 8 if unsigned[0] == "0" else 10))
        if value in _INT64 or (value in _UINT64 and digits[0] != "+"):
            return value
    return _decimal(text, digits) if _DECIMAL.fullmatch(digits) else text


def _decimal(text: str, digits: str) -> float | str:
    """Return a number that a float can hold; text otherwise."""
    value = float(digits)
    return value if math.isfinite(value) else text


def from_json(number: float) -> int | float:
    """Return a number as it is after Kubernetes wrote and read it as JSON: 1.0 is 1, and 2^64 is 18446744073709552000.

    Whole numbers of 64 bits are kept, others become floats, and a float without a fraction is written without a point.
    """
    if type(number) is int and number in _INT64:
        return number
    number = float(number)
    if abs(number) >= 1e21 or number % 1:  # noqa: PLR2004 -- written as 1e+21
        return number
    digits, _, exponent = repr(number).partition("e")  # from 1e16 on
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction.ljust(int(exponent), "0")) if exponent else int(whole)

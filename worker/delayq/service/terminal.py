"""Sanitize text for terminals: no escape sequences, no C1 controls, no change of direction."""

from __future__ import annotations

import re

_PRINTABLE_ASCII = re.compile(r"[\n -~]*")


def safe(text: str) -> str:
    """Replace every character that is not printable by `·`, except line breaks and tabs."""
    return "".join(char if char.isprintable() or char in "\n\t" else "·" for char in text)


def escaped(text: str) -> str:
    """Replace every character of JSON that is not printable by its escape; the value is the same.

    json.dumps escapes only the controls below space; all others are inside strings.
    """
    if _PRINTABLE_ASCII.fullmatch(text):
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

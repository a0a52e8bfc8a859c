"""Text that may reach a terminal, made harmless: no escape sequences, no C1 controls, no change of direction."""

from __future__ import annotations

import re

_PRINTABLE_ASCII = re.compile(r"[\n -~]*")


def safe(text: str) -> str:
    """Return text with its line breaks and tabs, and `·` for every other character that is not printable."""
    return "".join(char if char.isprintable() or char in "\n\t" else "·" for char in text)


def escaped(text: str) -> str:
    """Return JSON of the same value in which an escape stands for every character that is not printable.

    json.dumps escapes the controls below space only; all others stand inside of strings.
    """
    if _PRINTABLE_ASCII.fullmatch(text):
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

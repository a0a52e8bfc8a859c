"""Make bytes from outside safe for a log line, an error message and a terminal."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

REDACTED: Final = "[redacted]"
MOST_OF_ESCAPE: Final = 8  # characters after the first one, but for leading zeros
LEAST_CHARS: Final = 6  # a shorter one protects nothing, and is part of many words
_JSON = r"\\u00(?:[2-6][0-9a-f]|7[0-9a-e])|\\[ -/:-@\[-`{-~]"
_URL = "%(?:[2-6][0-9a-f]|7[0-9a-e])"
_HTML = "&(?:amp|lt|gt|quot|apos);|&#x0*(?:[2-6][0-9a-f]|7[0-9a-e]);|&#0*(?:3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6]);"
# Each by itself, for a secret may look like an escape of another; then mixed.
_ESCAPES: Final = [
    re.compile(each, re.IGNORECASE) for each in (_JSON, _URL, _HTML, f"{_JSON}|{_URL}|{_HTML}")
]


def printable(data: bytes) -> str:
    """Decode text, and replace control characters: an error page must not control the terminal of `dlq get`."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def excerpt(data: bytes, limit: int) -> str:
    """Return the first `limit` characters on one line."""
    return " ".join(printable(data).split())[:limit]


def last_lines(data: bytes, *, lines: int, limit: int) -> list[str]:
    """Return the last non-empty lines in order, of the last `limit` characters."""
    found = [line.rstrip() for line in printable(data)[-limit:].splitlines() if line.strip()]
    return found[-lines:]


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a service's answer without secrets of the request, plain or escaped, and without their last words."""
    whole = set(secrets)
    words = {each.rpartition(" ")[2] for each in whole} - whole
    for group in (whole, words):
        forms = sorted((each for each in group if len(each) >= LEAST_CHARS), key=len, reverse=True)
        for escapes in _ESCAPES:
            text = _without(text, forms, escapes)
        for form in forms:
            text = text.replace(form, REDACTED)
    return text


def _without(text: str, forms: Iterable[str], escapes: re.Pattern[str]) -> str:
    """Redact what is one of the forms when these escapes are decoded; the time is linear. A `+` counts as a space."""
    decoded = escapes.sub(_decoded, text).replace("+", " ")
    there = [form for each in forms if (form := each.replace("+", " ")) in decoded]
    if not there:
        return text
    parts = [found[0] for found in re.finditer(f"{escapes.pattern}|.", text, escapes.flags | re.DOTALL)]
    for form in there:  # each part is one character of `decoded`
        at, between = 0, decoded.split(form)
        for each in between[:-1]:
            at, end = at + len(each), at + len(each) + len(form)
            last = parts[end - 1]
            parts[at:end] = [REDACTED, *[""] * (len(form) - 1)]
            # A last character that is escaped in another way begins with itself: & leaves amp; and % leaves 25.
            escaped = _ESCAPES[-1].match(last + "".join(parts[end : end + MOST_OF_ESCAPE]))
            if escaped is not None and _decoded(escaped) == form[-1]:
                parts[end : end + len(escaped[0]) - len(last)] = [""] * (len(escaped[0]) - len(last))
            at = end
        decoded = ("\0" * len(form)).join(between)
    return "".join(parts)


def _decoded(found: re.Match[str]) -> str:
    """Return the printable ASCII character that an escape stands for."""
    escape = found[0]
    if escape[0] == "&":
        return html.unescape(escape.lower())
    return escape[1] if len(escape) == 2 else chr(int(escape[-2:], 16))  # noqa: PLR2004 -- a backslash and a sign

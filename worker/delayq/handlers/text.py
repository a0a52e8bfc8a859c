"""Make bytes from outside safe for a log line, an error message and a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

REDACTED: Final = "[redacted]"
LEAST_CHARS: Final = 6  # a shorter one protects nothing, and is part of many words
_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", " ": "+"}  # "+": in a query


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
    forms = {form for secret in secrets for form in (secret, secret.rpartition(" ")[2])}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= LEAST_CHARS:
            text = re.sub(f"{''.join(map(_escaped, form))}|{re.escape(form)}", REDACTED, text)
    return text


def _escaped(char: str) -> str:
    """Match a printable ASCII character as it is in JSON, a URL or HTML; the longest form, so that time is linear."""
    if char.isalnum() or char in "-._~":
        return re.escape(char)
    code = f"{ord(char):02x}"
    numbers = (f"\\u00{code}", f"%{code}", f"&#x{code};", f"&#{ord(char)};", f"&#0{ord(char)};")
    forms = sorted((char, f"\\{char}", _NAMED.get(char, char), *numbers), key=len, reverse=True)
    return f"(?>(?i:{'|'.join(map(re.escape, forms))}))"

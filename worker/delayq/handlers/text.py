"""Make bytes from outside safe for a log line, an error message and a terminal."""

from __future__ import annotations


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

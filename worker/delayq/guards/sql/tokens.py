"""Which parts of a SQL statement are code, and which are texts, names and comments. Not here: SQL's grammar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# In this order: whatever begins first ends where its own rule says. A backslash only escapes where it is MySQL's or
# PostgreSQL's E'…', so texts with a quote behind a backslash are refused as unfinished rather than read wrongly.
_QUOTED: Final = re.compile(
    r"""
    '(?:[^']|'')*'                 # text
  | "(?:[^"]|"")*"                 # a name; MySQL: text
  | `(?:[^`]|``)*`                 # MySQL's name
  | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)   # PostgreSQL's text in dollars
  | --[^\n]*                       # comments
  | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN: Final = re.compile(r"""['"`]|/\*|\$(?:[A-Za-z_]\w*)?\$""")


def pieces(statement: str) -> Iterator[tuple[str, bool]]:
    """Cut a statement into (text, is it code)."""
    at = 0
    for quoted in _QUOTED.finditer(statement):
        yield statement[at : quoted.start()], True
        yield quoted[0], False
        at = quoted.end()
    yield statement[at:], True


def code(statement: str) -> str:
    """Return the statement with a space for each text, name in quotes and comment."""
    return "".join(text if is_code else " " for text, is_code in pieces(statement))


def unfinished(code_only: str) -> bool:
    """Tell whether a quote or comment begins and does not end."""
    return _OPEN.search(code_only) is not None

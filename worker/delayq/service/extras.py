"""Which extra of delayq brings which package, so that a missing one is a sentence and no traceback."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

DATABASE: Final = "delayq[sql] (PostgreSQL, SQLite) or delayq[mysql] (MariaDB, MySQL)"
SQL: Final = (
    "sqlalchemy",
    "greenlet",
)  # SQLAlchemy's asynchronous half cannot even be imported without the latter
BROUGHT_BY: Final = {
    **dict.fromkeys(("click", "rich"), "delayq[cli]"),
    **dict.fromkeys(("aiohttp", "uvloop"), "delayq[worker]"),
    **dict.fromkeys(SQL, DATABASE),
}
"""Package, by the name it is imported as, and what to install. Drivers of databases: guards/sql/urls.py."""


def sentence(package: str | None) -> str:
    """Say what to install; empty for a package that no extra brings: it is missing in the user's code."""
    name = (package or "").partition(".")[0]
    return f"{name} is not installed: install {BROUGHT_BY[name]}" if name in BROUGHT_BY else ""


def lacking(*packages: str) -> str:
    """Return the sentence for the first of these that is not there; empty when all are."""
    return next((sentence(name) for name in packages if find_spec(name) is None), "")

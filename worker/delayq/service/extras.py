"""Packages and the extras of delayq that install them, so that a missing package is an error message."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final

DATABASE: Final = "delayq[sql] (PostgreSQL, SQLite) or delayq[mysql] (MariaDB, MySQL)"
SQL: Final = (
    "sqlalchemy",
    "greenlet",
)  # SQLAlchemy's asyncio extension cannot be imported without greenlet
BROUGHT_BY: Final = {
    **dict.fromkeys(("click", "cronsim", "rich"), "delayq[cli]"),
    **dict.fromkeys(("aiohttp", "uvloop"), "delayq[worker]"),
    **dict.fromkeys(("httptools", "jwt", "uvicorn"), "delayq[api]"),
    "pydantic": "delayq[pydantic]",
    "watchfiles": "delayq[reload]",
    **dict.fromkeys(SQL, DATABASE),
}
"""Package, by the name it is imported as, and what to install. Drivers of databases: guards/sql/urls.py."""

NAMED: Final = re.compile(r"delayq\[\w+\]")
"""An extra in a message of an error."""


def sentence(package: str | None) -> str:
    """Return what to install; empty for a package of no extra, which the user's code needs."""
    name = (package or "").partition(".")[0]
    return f"{name} is not installed: install {BROUGHT_BY[name]}" if name in BROUGHT_BY else ""


def lacking(*packages: str) -> str:
    """Return the sentence of the first missing package; empty when none is missing."""
    return next((sentence(name) for name in packages if find_spec(name) is None), "")

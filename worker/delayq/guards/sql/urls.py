"""Map database URLs in their usual forms to drivers. Not here: engines."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from delayq.errors import InvalidDocument

EXPECTED: Final = (
    "expected a database URL like postgresql://user:password@host:5432/name, mysql://… or sqlite:////path/file, "
    "got something else; write / @ : # ? and % in a password as %2F %40 %3A %23 %3F and %25"
)
EXTRAS: Final = {"psycopg": "delayq[sql]", "pymysql": "delayq[mysql]", "aiomysql": "delayq[mysql]"}
_SAME: Final = {"postgres": "postgresql", "mariadb": "mysql"}


class Drivers(NamedTuple):
    """The drivers for synchronous code and for asyncio, by SQLAlchemy's names; None for none."""

    plain: str | None
    aio: str | None


# By the driver in the URL; "" for none. A named driver is used, with its counterpart for the other kind of code.
_DRIVERS: Final = {
    "postgresql": {
        "": Drivers("psycopg", "psycopg"),
        "psycopg": Drivers("psycopg", "psycopg"),
        "psycopg_async": Drivers("psycopg", "psycopg"),
        "asyncpg": Drivers("psycopg", "asyncpg"),
        "psycopg2": Drivers("psycopg2", None),
    },
    "mysql": {
        "": Drivers("pymysql", "aiomysql"),
        "pymysql": Drivers("pymysql", "aiomysql"),
        "aiomysql": Drivers("pymysql", "aiomysql"),
        "asyncmy": Drivers("pymysql", "asyncmy"),
        "mysqldb": Drivers("mysqldb", None),
    },
    "sqlite": {
        "": Drivers("pysqlite", "aiosqlite"),
        "pysqlite": Drivers("pysqlite", "aiosqlite"),
        "aiosqlite": Drivers("pysqlite", "aiosqlite"),
    },
}
_MODULES: Final = {"pysqlite": "sqlite3", "mysqldb": "MySQLdb"}
_OPTIONAL: Final = frozenset({"aiosqlite"})  # without it, SQLite is called in threads


def parse(text: str) -> URL:
    """Parse a URL. InvalidDocument quotes no part of it: any part may belong to a password."""
    try:
        url = make_url(text.strip())
    except (ArgumentError, ValueError):
        raise InvalidDocument(EXPECTED) from None
    kind, _, driver = url.drivername.partition("+")
    kind = _SAME.get(kind, kind)
    # A password with an @ that was not encoded leaves its end in the host, which is logged.
    strange = set(url.host or "") & set("@#/?%")
    if strange or kind not in _DRIVERS or (kind != "sqlite" and not url.host and "host" not in url.query):
        raise InvalidDocument(EXPECTED)
    if driver not in _DRIVERS[kind]:
        known = ", ".join(name for name in _DRIVERS[kind] if name)
        raise InvalidDocument(f"expected one of the drivers {known}, or none, in the database URL")
    return url.set(drivername=f"{kind}+{driver}" if driver else kind)


def plain(url: URL) -> URL:
    """Return the URL with the driver for code without an event loop; InvalidDocument when it is not installed."""
    driver = _drivers(url).plain
    if driver is None or not _installed(driver):
        raise InvalidDocument(_missing(url, driver))
    return _with(url, driver)


def aio(url: URL) -> URL | None:
    """Return the URL with the driver for an event loop; None if only the driver for threads can be used."""
    driver = _drivers(url).aio
    if driver is None or (driver in _OPTIONAL and not _installed(driver)):
        return None
    if not _installed(driver):
        raise InvalidDocument(_missing(url, driver))
    return _with(url, driver)


def with_asyncio(url: URL) -> str:
    """Return how to get a driver for an event loop, if aio() returns none."""
    if missing := _drivers(url).aio:
        return f"install {missing} (pip install {missing})"
    kind, _, driver = url.drivername.partition("+")
    able = [name for name, each in _DRIVERS[kind].items() if name and each.aio == name]
    return f"name {' or '.join(able)} in the URL instead of {driver}"


def where(url: URL) -> str:
    """Return the URL without user and password: postgresql://host:5432/name."""
    bare = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return bare.render_as_string()


def _drivers(url: URL) -> Drivers:
    kind, _, driver = url.drivername.partition("+")
    return _DRIVERS[kind][driver]


def _with(url: URL, driver: str) -> URL:
    return url.set(drivername=f"{url.get_backend_name()}+{driver}")


def _installed(driver: str) -> bool:
    return find_spec(_MODULES.get(driver, driver)) is not None


def _missing(url: URL, driver: str | None) -> str:
    named = (
        f"the driver {driver} for {url.get_backend_name()}" if driver else f"a driver for {url.drivername}"
    )
    return f"{named} is not installed: install {EXTRAS.get(driver or '', driver)}"

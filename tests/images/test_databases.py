"""The stock image of workers has what every guard needs: it reaches databases, and users install nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.databases import DatabaseServer, MariaDB, Postgres

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.images.container import Container

ASK = """
import asyncio, sys
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

async def ask(url):
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        print("async", await connection.scalar(text("SELECT 7")))
    await engine.dispose()

asyncio.run(ask(sys.argv[1]))
with create_engine(sys.argv[2]).connect() as connection:
    print("sync", connection.scalar(text("SELECT 7")))
"""


@pytest.mark.parametrize(
    ("kind", "drivers"), [(Postgres, ["psycopg", "psycopg"]), (MariaDB, ["aiomysql", "pymysql"])]
)
def test_a_worker_reaches_a_database_with_and_without_asyncio(
    unpacked: Callable[[str], Container],
    tmp_path: Path,
    kind: type[DatabaseServer],
    drivers: list[str],
) -> None:
    server = kind.start(tmp_path)
    try:
        said = unpacked("worker").output("python", "-c", ASK, *map(server.url, drivers))
    finally:
        server.stop()
    assert [line for line in said.splitlines() if line] == ["async 7", "sync 7"]


def test_logging_in_to_mysql_needs_nothing_more(unpacked: Callable[[str], Container]) -> None:
    """Without TLS its usual way encrypts the password itself."""
    said = unpacked("worker").output(
        "python", "-c", "from pymysql._auth import _have_cryptography as have; print(have)"
    )
    assert said.strip() == "True"

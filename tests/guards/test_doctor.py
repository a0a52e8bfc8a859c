"""delayq doctor asks the document's guard what a worker asks before it claims, and says what to do about it."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.guards.sql import urls

from tests.guards.sql_bank import sql
from tests.unit.cli.runner import run
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import Postgres
    from tests.servers import RedisServer

DATABASE = {"databaseSecretRef": {"name": "store", "key": "urls"}}
BY_ROW = {"update": "UPDATE orders SET status = 'done' WHERE id = :task_id"}


class Doctor:
    """A document, its guard's Secret, and what the doctor finds out about that guard."""

    def __init__(self, home: Path, server: RedisServer) -> None:
        self.home, self.server = home, server
        (home / "store").mkdir()
        self.handler, self.said = "json:dumps", ""

    def store(self, *urls: str) -> None:
        (self.home / "store" / "urls").write_text("\n".join(urls))

    def ask(
        self, guard: dict[str, Any] | None, *args: str, port: int = 0, check: str = "guard", **env: str
    ) -> tuple[int, str]:
        """The exit code, and the level of the check; what it says is in `said`."""
        redis = {"standalone": {"host": "127.0.0.1", "port": port or self.server.port}}
        handler = {"python": {"callable": self.handler}}
        body = document(redis=redis, handler=handler, guard=guard)
        path = self.home / "queue.yaml"
        path.write_text(json.dumps(body))
        done = run("doctor", str(path), "-o", "json", *args, **{"DELAYQ_SECRETS_DIR": str(self.home), **env})
        assert "hidden" not in done.output
        found = [each for each in json.loads(done.stdout) if each["check"] == check]
        self.said = "".join(f"{each['message']} → {each['hint']}" for each in found)
        return done.exit_code, "".join(each["level"] for each in found)


@pytest.fixture
def doctor(tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.delenv("DELAYQ_DATABASE_URL", raising=False)
    return Doctor(tmp_path, redis_server)


def test_a_guard_that_serves_is_reported_with_its_place_and_asked_even_where_redis_is_away(
    doctor: Doctor,
) -> None:
    where = f"sqlite:///{doctor.home}/shop.sqlite"
    doctor.store(where)
    assert doctor.ask({"sqlUnique": DATABASE}, port=1) == (4, "failed")
    assert doctor.ask({"redisLock": {}}, port=1) == (4, "")
    made = SqlUnique(where)
    made.install_sync()
    made.close_sync()
    assert doctor.ask({"sqlUnique": DATABASE}) == (0, "ok")
    assert doctor.said == f"sql-unique serves, at {where} → "
    assert doctor.ask({"sqlUnique": DATABASE}, DELAYQ_DATABASE_URL=where) == (0, "ok")
    assert "by $DELAYQ_DATABASE_URL" in doctor.said
    assert doctor.ask({"redisLock": {}}) == (0, "ok")
    assert doctor.ask(None) == (0, "")


def test_what_is_wrong_with_a_table_or_a_statement_says_what_to_do(
    doctor: Doctor, postgres: Postgres
) -> None:
    doctor.store(f"sqlite:///{doctor.home}/shop.sqlite")
    assert doctor.ask({"sqlUnique": DATABASE}) == (1, "failed")
    assert doctor.said.endswith(f"→ delayq guard init {doctor.home}/queue.yaml")
    assert doctor.ask({"sqlOptimistic": DATABASE | BY_ROW}) == (1, "failed")
    assert "no such table: orders" in doctor.said
    assert "correct the statements" in doctor.said
    made = SqlUnique(f"sqlite:///{doctor.home}/shop.sqlite")
    sql(made, "CREATE TABLE orders (id TEXT, status TEXT)")
    made.close_sync()
    assert doctor.ask({"sqlOptimistic": DATABASE | BY_ROW}) == (0, "ok"), "its rows are the user's own"
    assert doctor.ask({"sqlOptimistic": DATABASE | {"update": "DROP TABLE orders"}}) == (1, "failed")
    postgres.create_database("keyless")
    doctor.store(postgres.url(database="keyless"))
    made = SqlUnique(postgres.url(database="keyless"))
    made.install_sync()
    sql(made, "ALTER TABLE delayq_processed DROP CONSTRAINT delayq_processed_pkey")
    made.close_sync()
    assert doctor.ask({"sqlUnique": DATABASE}) == (1, "failed")
    assert "the primary key is ()" in doctor.said
    postgres.drop_database("keyless")


def test_a_server_that_is_away_or_refuses_us_is_exit_code_4(doctor: Doctor, postgres: Postgres) -> None:
    doctor.store("postgresql://u:hidden@127.0.0.1:1/shop")
    assert doctor.ask({"sqlUnique": DATABASE}) == (4, "failed")
    assert doctor.said.startswith("postgresql://127.0.0.1:1/shop: ")
    doctor.store(postgres.url(database="nowhere"))
    assert doctor.ask({"sqlUnique": DATABASE}) == (4, "failed")


def test_a_secret_that_is_not_here_stops_only_a_worker_here(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.ask({"sqlUnique": DATABASE}) == (1, "failed")
    assert doctor.said.endswith("or set $DELAYQ_DATABASE_URL")
    assert doctor.ask({"sqlUnique": DATABASE}, "--redis", doctor.server.url) == (0, "warning")
    with monkeypatch.context() as pod:
        pod.setattr("delayq.cli.doctor.guard.CONFIG_FILE", str(doctor.home / "queue.yaml"))
        assert doctor.ask({"sqlUnique": DATABASE}) == (0, "skipped")
        assert "the condition GuardAvailable shows" in doctor.said
    doctor.store("nonsense")
    assert doctor.ask({"sqlUnique": DATABASE}) == (1, "failed")


async def takes_connection(_task: object, connection: object) -> None:
    """A coroutine function, which needs a driver for asyncio."""


def test_a_function_that_no_installed_driver_serves_is_found_before_a_worker_starts(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"sqlite:///{doctor.home}/shop.sqlite"
    doctor.store(where)
    made = SqlUnique(where)
    made.install_sync()
    made.close_sync()
    doctor.handler = f"{__name__}:takes_connection"
    assert doctor.ask({"sqlUnique": DATABASE}) == (0, "ok")
    find = importlib.util.find_spec
    monkeypatch.setattr(urls, "find_spec", lambda name: None if name == "aiosqlite" else find(name))
    assert doctor.ask({"sqlUnique": DATABASE}, check="handler") == (1, "failed")
    assert "install aiosqlite" in doctor.said


def test_a_redlock_says_which_servers_are_away(doctor: Doctor, aof_server: RedisServer) -> None:
    """A minority is a warning."""
    good, bad = doctor.server.url, [f"redis://127.0.0.1:{port}" for port in (1, 2)]
    redlock = {"redlock": {"urlsSecretRef": {"name": "store"}}}
    doctor.store(good, *bad)
    assert doctor.ask(redlock) == (4, "failed")
    assert "2 of 3 servers must serve, 2 do not" in doctor.said
    doctor.store(good)
    assert doctor.ask(redlock) == (1, "failed")
    doctor.store(good, aof_server.url, bad[0])
    assert doctor.ask(redlock) == (0, "warning")
    assert doctor.said.startswith("redlock serves, without 1 of 3 servers: 127.0.0.1:1 →")

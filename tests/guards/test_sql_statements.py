"""Users' statements in spec.guard: what is refused, what a task's values become, and what guards make of them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import Bury, GuardUnavailable, InvalidDocument, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic
from delayq.guards.sql.statements import READS, Statement
from delayq.guards.sql_optimistic import HANDLER_CHANGED
from delayq.protocol.envelope import BYTES_TYPE, JSON_TYPE
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.guards.sql_bank import EFFECT, HASTY, PATIENT, effects, prepared, sql, task, transfer

if TYPE_CHECKING:
    from tests.guards.conftest import Database, Make, Opened

FIELD = "spec.guard.sqlPessimistic.select"
OPEN = "SELECT 1 FROM orders WHERE id = :payload_order AND status = 'open'; "
BY_STATUS = "UPDATE orders SET status = 'done' WHERE id = :payload_order AND status = 'open'"
BY_VERSION: dict[str, Any] = {
    "select": "SELECT version FROM orders WHERE id = :payload_order AND status = 'open'",
    "update": "UPDATE orders SET version = version + 1, status = 'done' "
    "WHERE id = :payload_order AND version = :version",
}


def statement(words: str) -> Statement:
    return Statement(words, field=FIELD, begins=READS)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("DELETE FROM orders", 'expected a statement that begins with SELECT or WITH, got "DELETE"'),
        ("/* SELECT */ DROP TABLE x", 'begins with SELECT or WITH, got "DROP"'),
        ("SELECT 1; --\nDELETE FROM orders", "got several"),
        ("SELECT 'it''s", "a quote or comment that does not end"),
        (r"SELECT 'it\'s'", "a quote or comment that does not end"),
        ("SELECT 1 /* for now", "a quote or comment that does not end"),
    ],
)
def test_what_is_not_one_query_is_refused(words: str, problem: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        statement(words)
    assert str(refused.value).startswith(f"{FIELD}: expected")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("SELECT :task_id, :queue, :token, :task_id;", ("task_id", "queue", "token")),
        ("SELECT 'at 12:30', \":no\", `:no`, $$ :no ; $$, $a$ :no $a$ -- :no ;", ()),
        ("SELECT id::text, :payload_é /* :no; */ FROM x", ("payload_é",)),
        ("select 1 -- it's fine", ()),
        ("WITH a AS (SELECT 1) SELECT * FROM a WHERE b = :payload_b", ("payload_b",)),
    ],
)
def test_parameters_are_found_in_code_only(words: str, names: tuple[str, ...]) -> None:
    made = statement(words)
    assert made.names == names
    assert set(made.followed_by("")._bindparams) == set(names)


@pytest.mark.parametrize("lock", ["for  no key update", "FOR SHARE NOWAIT", "lock in share mode"])
def test_a_query_that_locks_by_itself_is_refused(lock: str) -> None:
    with pytest.raises(InvalidDocument, match=r"select: expected no FOR UPDATE .*wait adds it"):
        SqlPessimistic("sqlite:///x", select=f"SELECT 1 {lock}")
    SqlPessimistic("sqlite:///x", select=f"SELECT 1 -- {lock}")


@pytest.mark.parametrize(
    ("kind", "statements", "named"),
    [
        (SqlPessimistic, {"select": "SELECT :order"}, r"sqlPessimistic.select: .*, got :order"),
        (
            SqlOptimistic,
            {"select": "SELECT :version", "update": "UPDATE x"},
            r"Optimistic.select: .*, got :version",
        ),
        (SqlOptimistic, {"update": "UPDATE x SET y = :version"}, r"sqlOptimistic.update: .*, got :version"),
    ],
)
def test_unknown_parameters_are_refused_at_the_start(
    kind: Any,  # noqa: ANN401 -- a class
    statements: dict[str, str],
    named: str,
) -> None:
    with pytest.raises(InvalidDocument, match=named):
        kind("sqlite:///x", **statements)


def test_values_come_from_the_task_and_from_the_top_of_its_payload() -> None:
    made = statement("SELECT :task_id, :queue, :token, :attempt, :due_ms, :payload_a, :payload_b, :payload_c")
    values = made.values(task(token=3, body=b'{"a": "\'; DROP TABLE x", "b": null, "c": 1.5}'))
    assert values == {
        "task_id": "order-7",
        "queue": "orders",
        "token": 3,
        "attempt": 1,
        "due_ms": 1_700_000_000_000,
        "payload_a": "'; DROP TABLE x",
        "payload_b": None,
        "payload_c": 1.5,
    }


@pytest.mark.parametrize(
    ("body", "got"),
    [
        (b"{}", "got one without it"),
        (b'["order"]', "got a list"),
        (b'{"order": [7]}', "got a list there"),
        (b"\0", "got application/octet-stream"),
    ],
)
def test_a_task_whose_payload_lacks_a_parameter_is_buried_with_its_name(body: bytes, got: str) -> None:
    todo = task(body=body, content_type=BYTES_TYPE if body == b"\0" else JSON_TYPE)
    with pytest.raises(Bury, match=f":payload_order expects a JSON object with order in the payload, {got}"):
        statement("SELECT :payload_order").values(todo)


async def test_a_version_or_a_status_lets_one_of_two_runs_through(make: Make) -> None:
    guard = make(SqlOptimistic, limits=PATIENT, **BY_VERSION)
    by_status = make(SqlOptimistic, limits=PATIENT, update=BY_STATUS)
    for number in range(20):
        sql(guard, "INSERT INTO orders VALUES (:id, 1, 'open')", id=number)
    todo = [(f"order-{n}", b'{"order": %d}' % n, token) for n in range(19) for token in (1, 2)]
    ended = await asyncio.gather(*(transfer(guard, task(each, body=body, token=t)) for each, body, t in todo))
    last = [task("order-19", body=b'{"order": 19}', token=token) for token in range(10)]
    more = await asyncio.gather(*(transfer(by_status, each) for each in last))
    assert (sorted(ended), sorted(more)) == (["ran"] * 19 + ["seen"] * 19, ["ran"] + ["seen"] * 9)
    assert set(effects(guard).values()) == {1}
    assert sql(guard, "SELECT DISTINCT version, status FROM orders WHERE id < 19") == [(2, "done")]
    assert await guard.seen(task(body=b'{"order": 3}')) is True
    assert await by_status.seen(last[0]) is None


async def test_a_handler_that_changes_what_the_update_compares_fails_and_is_not_taken_for_another_run(
    database: Database, make: Make
) -> None:
    """Its work was rolled back: acked as seen, it would never be done."""
    guard = make(SqlOptimistic, limits=PATIENT, update=BY_STATUS)
    sql(guard, "INSERT INTO orders VALUES (7, 1, 'open')")
    done = text("UPDATE orders SET status = 'done' WHERE id = 7")

    async def changes_it_too() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(done)
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})

    async def is_overtaken() -> None:
        async with guard(task(token=2)) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 2})
            if database.kind == "sqlite":  # whose only lock this run has: no other run could
                raise Seen
            sql(guard, done.text)

    with pytest.raises(RuntimeError, match=re.escape(HANDLER_CHANGED)):
        await changes_it_too()
    assert effects(guard) == {}
    assert sql(guard, "SELECT status FROM orders") == [("open",)]
    with pytest.raises(Seen):
        await is_overtaken()
    assert effects(guard) == {}


async def test_a_row_that_the_query_no_longer_finds_is_done_and_a_payload_never_becomes_sql(
    make: Make,
) -> None:
    guard = make(SqlPessimistic, select=OPEN, limits=PATIENT)
    sql(guard, "INSERT INTO orders VALUES (7, 1, 'open')")
    await guard.check()
    assert await guard.seen(task()) is False
    by_text = make(SqlPessimistic, select="SELECT 1 FROM orders WHERE status = :payload_s", limits=HASTY)
    for hostile in (rb"' OR '1'='1", b"open' --", rb"\\' OR 1=1 --", b"%s", b":payload_s"):
        with pytest.raises(Seen):
            await by_text.begin(task(body=b'{"s": "%s"}' % hostile))
    async with guard(task()) as hold:
        await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
        await hold.connection.execute(text("UPDATE orders SET status = 'done' WHERE id = 7"))
    assert await guard.seen(task()) is True
    for gone in (task(token=2), task("other", body=b'{"order": 8}')):
        with pytest.raises(Seen):
            await guard.begin(gone)
    assert effects(guard) == {"order-7": 1}


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
async def test_the_check_reports_an_option_that_the_driver_does_not_have(
    database: Database, opened: Opened
) -> None:
    guard = opened(SqlPessimistic(f"{database.async_url}?ssl-mode=REQUIRED", select="SELECT 1", limits=HASTY))
    with pytest.raises(GuardUnavailable, match="ssl-mode"):
        await guard.check()


async def test_the_check_names_what_cannot_be_executed_and_changes_nothing(make: Make) -> None:
    update = "UPDATE orders SET version = version + 1, status = :payload_s"
    guard = make(SqlOptimistic, update=update, limits=HASTY)
    sql(guard, "INSERT INTO orders VALUES (7, 1, 'open')")
    await guard.check()
    assert sql(guard, "SELECT version, status FROM orders") == [(1, "open")]
    columns = {"select": "SELECT id FROM orders", "update": "UPDATE orders SET version = :version"}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (SqlOptimistic, {"update": update.replace("version =", "versio =")}, "versio"),
        (SqlOptimistic, {"update": update.replace("orders", "nowhere")}, "nowhere"),
        (SqlOptimistic, columns, r"sqlOptimistic.update: expected parameters from .*:id, got :version"),
        (SqlPessimistic, {"select": "SELECT 1 FROM nowhere WHERE id = :task_id"}, "nowhere"),
        (SqlPessimistic, {"select": "SELECT nothing FROM orders"}, "nothing"),
        (SqlPessimistic, {"select": "SELECT 1 FROM FROM x"}, "FROM"),
    ]
    for kind, statements, named in wrong:
        with pytest.raises(GuardUnavailable, match=named) as away:
            await make(kind, limits=HASTY, **statements).check()
        assert guard.where in str(away.value)


async def test_a_statement_that_fails_at_the_end_is_a_failed_attempt_and_is_not_retried(
    make: Make,
) -> None:
    """Uncharged, the handler would run again and again without end."""
    update = "UPDATE orders SET versio = 1 WHERE id = :payload_order"
    guard = make(SqlOptimistic, update=update, apart=True, limits=HASTY)
    hold = await guard.begin(task())
    with pytest.raises(DBAPIError):
        await asyncio.wait_for(guard.finish(hold), 10)
    reads = make(SqlPessimistic, select="SELECT 1 FROM nowhere", limits=HASTY)
    with pytest.raises(DBAPIError):
        await reads.begin(task())


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_payload_of_a_type_that_the_statement_cannot_use_is_buried(
    database: Database, driver: str, opened: Opened
) -> None:
    url = database.async_url.replace("psycopg", driver)
    select = "SELECT 1 FROM orders WHERE status = :payload_status"
    for guard in (SqlPessimistic(url, select=select, limits=HASTY),
                  SqlOptimistic(url, select=select, update="UPDATE orders SET id = 1", limits=HASTY)):  # fmt: skip
        if guard.name == "sql-pessimistic":
            prepared(guard)
        await guard.check()
        with pytest.raises(Bury, match=r"select: the database rejects a value: "):
            await guard.begin(task(body=b'{"status": 7}'))
        await guard.close()
    update = "UPDATE orders SET status = 'done' WHERE id = :payload_order"
    late = opened(SqlOptimistic(url, update=update, apart=True, limits=HASTY))
    hold = await late.begin(task(body=b'{"order": "seven"}'))
    with pytest.raises(Bury, match=r"update: the database rejects a value: "):
        await late.finish(hold)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_a_parameter_whose_type_only_a_value_tells_passes_the_check_and_buries_the_task_it_lacks(
    make: Make,
) -> None:
    guard = make(
        SqlOptimistic,
        select="SELECT :payload_order AS found WHERE :payload_order IS NOT NULL",
        update="UPDATE orders SET version = :version",
        apart=True,
        limits=HASTY,
    )
    await guard.check()
    with pytest.raises(Bury, match=r"update: expected parameters from .*:found, got :version"):
        await guard.finish(await guard.begin(task()))

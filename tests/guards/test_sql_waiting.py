"""How long SQL guards wait for another transaction, and for a connection: never without a bound."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import GuardBusy, GuardUnavailable, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.guards.sql import errors
from delayq.guards.sql.settings import SqlLimits
from sqlalchemy import text

from tests.guards.sql_bank import EFFECT, effects, sql, task, transfer

if TYPE_CHECKING:
    from delayq.guards.sql.guard import SqlGuard

    from tests.guards.conftest import Database, Make

SHORT = SqlLimits(lock_timeout_ms=1000)
LONG = SqlLimits(lock_timeout_ms=60_000)
SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
SOON = 15.0  # seconds: much less than LONG, much more than it takes


async def refused(guard: SqlGuard, **more: Any) -> float:  # noqa: ANN401 -- of a task
    """How long it took to say that another run has the task."""
    began = time.monotonic()
    with pytest.raises(GuardBusy):
        await guard.begin(task(**more))
    return time.monotonic() - began


def test_what_was_put_off_together_does_not_come_back_together() -> None:
    for made in (errors.busy, lambda why: errors.away("there", why)):
        delays = [made("later").delay_ms or 0 for _ in range(100)]
        assert max(delays) - min(delays) > 100


@pytest.mark.parametrize("kind", [SqlUnique, SqlPessimistic])
async def test_waiting_for_another_run_is_bounded(kind: Any, make: Make) -> None:  # noqa: ANN401 -- a class
    first, second = make(kind, limits=SHORT), make(kind, limits=SHORT)
    async with first(task()) as hold:
        await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
        assert 0.9 < await refused(second, token=2) < SOON
    assert await transfer(second, task(token=3)) == "seen"
    assert effects(first) == {"order-7": 1}


@SERVERS
async def test_a_run_that_waits_goes_on_when_the_other_run_fails(database: Database, make: Make) -> None:
    first, second = make(SqlUnique, limits=LONG), make(SqlUnique, limits=LONG)
    hold = await first.begin(task())
    waiting = asyncio.create_task(transfer(second, task(token=2)))
    await _waits_for_a_lock(database, first)
    await first.abandon(hold)
    assert await waiting == "ran"


@SERVERS
@pytest.mark.parametrize("wait", ["NoWait", "SkipLocked"])
@pytest.mark.parametrize(
    "select", [None, "SELECT 1 FROM orders WHERE id = :payload_order AND status = 'open'"]
)
async def test_a_locked_row_is_not_waited_for_where_the_document_says_so(
    wait: Any,  # noqa: ANN401 -- one of a few words
    select: str | None,
    make: Make,
) -> None:
    first = make(SqlPessimistic, select=select, wait=wait, limits=LONG)
    second = make(SqlPessimistic, select=select, wait=wait, limits=LONG)
    sql(first, "INSERT INTO orders VALUES (7, 1, 'open')")
    hold = await first.begin(task())
    assert await refused(second, token=2) < SOON
    await first.abandon(hold)
    async with first(task(token=99)) as hold:
        await hold.connection.execute(text("UPDATE orders SET status = 'cancelled' WHERE id = 7"))
    with pytest.raises(Seen):
        await second.begin(task(token=100))


@SERVERS
@pytest.mark.parametrize(
    ("select", "done"),
    [
        (
            "SELECT id FROM orders WHERE id = :payload_order AND status = 'open'",
            "UPDATE orders SET status = 'cancelled' WHERE id = 7",
        ),
        # PostgreSQL reads the locked row again, and other tables as they were before the wait.
        (
            "SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM effects WHERE run = orders.id)",
            "INSERT INTO effects VALUES ('x', 7)",
        ),
    ],
)
async def test_a_run_that_waited_for_a_users_row_sees_that_it_is_done(
    database: Database, make: Make, select: str, done: str
) -> None:
    first = make(SqlPessimistic, select=select, limits=LONG)
    second = make(SqlPessimistic, select=select, limits=LONG)
    sql(first, "INSERT INTO orders VALUES (7, 1, 'open')")
    hold = await first.begin(task())
    waiting = asyncio.create_task(second.begin(task(token=2)))
    await _waits_for_a_lock(database, first)
    await hold.connection.execute(text(done))
    await first.finish(hold)
    with pytest.raises(Seen):
        await waiting


async def _waits_for_a_lock(database: Database, guard: SqlGuard) -> None:
    """Look until the server says that a transaction does."""
    asked = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
    if database.kind != "postgresql":
        asked = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    while sql(guard, asked) == [(0,)]:  # noqa: ASYNC110 -- another process' doing has no event
        await asyncio.sleep(0.2)  # MariaDB renews what it shows only when it was not read for 0.1 s


@SERVERS
async def test_an_optimistic_run_waits_at_its_end_only_and_not_for_ever(make: Make) -> None:
    update = "UPDATE orders SET version = version + 1 WHERE id = :payload_order AND version = :version"
    options = {"select": "SELECT version FROM orders WHERE id = :payload_order", "update": update}
    guard = make(SqlOptimistic, limits=SHORT, **options)
    sql(guard, "INSERT INTO orders VALUES (7, 1, 'open')")
    other = make(SqlPessimistic, select="SELECT 1 FROM orders WHERE id = 7", limits=SHORT)
    locked = await other.begin(task())
    hold = await guard.begin(task())  # reads, and waits for no lock
    with pytest.raises(GuardBusy):
        await guard.finish(hold)
    await other.abandon(locked)
    assert sql(guard, "SELECT version FROM orders") == [(1,)]


@SERVERS
async def test_a_pool_is_bounded_and_a_task_that_waits_too_long_for_it_comes_again(make: Make) -> None:
    select = make(
        SqlPessimistic, select="SELECT 1", limits=SqlLimits(max_connections=2, lock_timeout_ms=1000)
    )
    holds = [await select.begin(task()) for _ in range(2)]
    with pytest.raises(GuardBusy, match="maxConnections"):
        await select.begin(task())
    await select.check()  # busy is not away
    for hold in holds:
        await select.abandon(hold)
    await select.abandon(await select.begin(task()))


async def test_a_check_does_not_wait_long_and_does_not_take_waiting_for_an_outage(make: Make) -> None:
    guard = make(SqlPessimistic, limits=SqlLimits(max_connections=1, lock_timeout_ms=60_000))
    guard.close_sync()
    hold = await guard.begin(task())
    other = make(SqlPessimistic, limits=LONG)  # on SQLite, it has to wait for the database
    for each in (guard, other):
        await asyncio.wait_for(each.check(), SOON)
    await guard.abandon(hold)


@SERVERS
async def test_a_worker_that_stands_still_holds_its_row_no_longer_than_a_run_may_take(
    make: Make,
) -> None:
    other = make(SqlUnique, limits=LONG)
    still = make(SqlUnique, limits=SqlLimits(run_seconds=-29))  # so that it is 1 s with the margin
    hold = await still.begin(task())
    assert await transfer(other, task(token=2)) == "ran"  # waits until the database has ended the other one
    with pytest.raises(GuardUnavailable):
        await still.finish(hold)
    assert effects(other) == {"order-7": 1}

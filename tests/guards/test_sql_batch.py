"""Several tasks in one transaction of a SQL guard: each has its effect once, also if others fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq.errors import Bury, Retry, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.handlers.guarded import sharing_batch, sharing_batch_in_thread
from sqlalchemy import event

from tests.guards.sql_bank import EFFECT, PATIENT, effects, task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.guards.sql.guard import SqlGuard
    from delayq.protocol.envelope import Task

    from tests.guards.conftest import Make

IDS = ["order-3", "order-1", "order-2"]


@pytest.fixture(params=[SqlUnique, SqlPessimistic])
def guard(request: pytest.FixtureRequest, make: Make) -> SqlGuard:
    made: SqlGuard = make(request.param, queue="orders", limits=PATIENT)
    return made


def tasks(token: int, ids: Sequence[str] = IDS) -> list[Task]:
    return [task(each, token=token) for each in ids]


async def run(
    guard: SqlGuard,
    given: list[Task],
    *,
    outcomes: dict[str, BaseException] | None = None,
    error: Exception | None = None,
) -> list[str]:
    """One call: what does not fail writes. Return the type of each outcome."""
    failing = outcomes or {}

    async def call(granted: Sequence[Task], *, connection: object) -> list[BaseException | None]:
        rows = [{"id": each.id, "token": each.token} for each in granted if each.id not in failing]
        if rows:
            await connection.execute(EFFECT, rows)  # type: ignore[attr-defined]
        if error:
            raise error
        return [failing.get(each.id) for each in granted]

    found = await sharing_batch(call, guard)(given)
    return [type(each).__name__ if each else "" for each in found]


async def test_marks_of_tasks_that_are_not_done_are_removed_and_the_others_have_one_effect(
    guard: SqlGuard,
) -> None:
    assert await run(guard, tasks(1), outcomes={"order-1": Retry(), "order-2": Bury()}) == [
        "",
        "Retry",
        "Bury",
    ]
    assert effects(guard) == {"order-3": 1}
    assert [await guard.seen(each) for each in tasks(2)] == [True, False, False]
    assert await run(guard, tasks(2)) == ["Seen", "", ""]
    assert effects(guard) == dict.fromkeys(IDS, 1)
    assert await run(guard, tasks(3)) == ["Seen"] * 3
    assert effects(guard) == dict.fromkeys(IDS, 1)


async def test_an_error_of_the_call_leaves_no_mark_and_no_write(guard: SqlGuard) -> None:
    with pytest.raises(KeyError):
        await run(guard, tasks(1), error=KeyError("card"))
    assert effects(guard) == {}
    assert [await guard.seen(each) for each in tasks(2)] == [False] * 3
    assert await run(guard, tasks(2)) == [""] * 3


async def test_a_call_in_a_thread_does_the_same(guard: SqlGuard) -> None:
    def call(granted: Sequence[Task], *, connection: object) -> list[BaseException | None]:
        connection.execute(EFFECT, [{"id": each.id, "token": each.token} for each in granted])  # type: ignore[attr-defined]
        return [None, None, None]

    found = await asyncio.to_thread(sharing_batch_in_thread(call, guard), tasks(1))
    assert found == [None] * 3
    assert effects(guard) == dict.fromkeys(IDS, 1)
    [first, *_] = await asyncio.to_thread(sharing_batch_in_thread(call, guard), tasks(2))
    assert isinstance(first, Seen)
    assert effects(guard) == dict.fromkeys(IDS, 1)


async def test_calls_with_tasks_in_common_wait_for_each_other_and_do_not_lock_each_other_out(
    guard: SqlGuard,
) -> None:
    """Rows are locked in the order of IDs: in the order of the calls, these two would be a deadlock."""
    ids = [f"order-{nth:03}" for nth in range(40)]
    found = await asyncio.gather(
        run(guard, tasks(1, ids)), run(guard, tasks(2, ids[::-1])), run(guard, tasks(3, ids[20:] + ids[:20]))
    )
    assert effects(guard) == dict.fromkeys(ids, 1)
    assert sorted(outcome for each in found for outcome in each) == [""] * 40 + ["Seen"] * 80


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_the_marks_of_a_call_take_a_few_statements(make: Make) -> None:
    guard = make(SqlUnique, queue="orders", limits=PATIENT)
    statements: list[str] = []
    hold = await guard.begin(task("warm"))
    engine = hold.connection.sync_engine
    await guard.abandon(hold)

    @event.listens_for(engine, "before_cursor_execute")
    def count(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    assert await run(guard, tasks(1, [f"order-{nth}" for nth in range(500)])) == [""] * 500
    assert sum("delayq" in each and "set_config" not in each for each in statements) <= 4, statements


def test_the_guards_that_take_batches() -> None:
    assert SqlUnique("sqlite://").takes_batches
    assert SqlPessimistic("sqlite://").takes_batches
    assert not SqlUnique("sqlite://", apart=True).takes_batches
    assert not SqlOptimistic("sqlite://").takes_batches

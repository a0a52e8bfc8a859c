"""A worker with functions that take several tasks at once: one call for many tasks, and each of them accounted for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client, NewTask
from delayq.connection import Address
from delayq.guards import SqlUnique
from delayq.handlers.app import AppHandler
from delayq.handlers.base import HandlerSetupError

from tests.guards.sql_bank import PATIENT, effects, prepared, task
from tests.redis import batch_shop as shop
from tests.redis.recovering import until
from tests.redis.test_kinds import has
from tests.redis.test_kinds import working as working_with
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


APP = {
    "handler": {"app": "tests.redis.batch_shop:app"},
    "worker": {"concurrency": 100, "drainTimeoutSeconds": 1},
}
working: Any = partial(working_with, **APP)  # type: ignore[arg-type]


@pytest.fixture
async def client(redis_url: str, orders: object) -> AsyncIterator[Client]:
    del orders  # the queue is empty, and the clock moves
    shop.CALLS.clear()
    shop.HELD = asyncio.Event()
    async with Client(redis_url, queue="orders") as client:
        shop.app.bind(client)
        yield client
        shop.app._client = None


async def test_due_tasks_are_one_call(client: Client, redis_url: str) -> None:
    await client.schedule_many(shop.insert.options().task(nth) for nth in range(200, 300))
    async with working(redis_url) as worker:
        await has(client, waiting=0, in_flight=0)
        assert worker.counters.claimed == 100
    assert [sorted(rows) for rows in shop.CALLS] == [list(range(200, 300))]


@pytest.mark.parametrize("kind", [shop.insert, shop.once], ids=["three attempts", "one attempt"])
async def test_only_the_poison_task_of_a_batch_is_buried(
    client: Client, redis_url: str, kind: object
) -> None:
    await client.schedule_many(kind.options(id=str(nth)).task(nth) for nth in range(100))  # type: ignore[attr-defined]
    async with working(redis_url):
        counts = await has(client, waiting=0, in_flight=0, dead=1)
    [dead] = await client.dlq_list()
    name = kind.name  # type: ignore[attr-defined]
    assert (dead.id, dead.failed.reason) == (f"{name}:{shop.POISON}", "attempts")
    assert "ValueError: poison" in dead.failed.error
    assert counts.stats["acked"] == 99
    assert len(shop.CALLS[0]) == 100
    of_poison = [len(rows) for rows in shop.CALLS if shop.POISON in rows]
    assert of_poison[-1] == 1, "the last attempt is one alone"
    assert dead.failed.failures == len(of_poison) == (3 if name == "insert" else 2)


async def test_a_worker_that_stops_hands_back_the_tasks_of_a_call_uncharged(
    client: Client, redis_url: str
) -> None:
    rows = [shop.SLOW, *range(200, 220)]
    await client.schedule_many(shop.insert.options(id=str(nth)).task(nth) for nth in rows)
    async with working(redis_url):
        await until(lambda: bool(shop.CALLS))
    counts = await client.counts()
    assert (counts.waiting, counts.in_flight, counts.dead) == (21, 0, 0)
    found = await client.get("insert:200")
    assert found is not None
    assert found.failed.failures == found.failed.crashes == 0
    shop.HELD.set()
    async with working(redis_url):
        await has(client, waiting=0, in_flight=0, dead=0)


async def test_a_call_with_a_bound_waits_for_tasks_of_several_claims(client: Client, redis_url: str) -> None:
    async with working(redis_url) as worker:
        await client.schedule_many(shop.full.options().task(nth) for nth in range(20))
        await until(lambda: worker.slots.busy == 20)
        assert shop.CALLS == []
        await client.schedule_many(shop.full.options().task(nth) for nth in range(20, 40))
        await has(client, waiting=0, in_flight=0)
    assert [sorted(rows) for rows in shop.CALLS] == [list(range(40))]


@pytest.mark.parametrize(("name", "joins"), [("redis-lock", True), ("sql-unique", False)])
def test_a_guard_that_cannot_hold_a_batch_is_refused_before_anything_is_claimed(
    name: str, *, joins: bool
) -> None:
    class Named:
        takes_batches = joins is False

    Named.name = name  # type: ignore[attr-defined]
    handler = {"python": {"app": "tests.redis.batch_shop:app"}}
    made = AppHandler(shop.app, document(handler))
    with pytest.raises(HandlerSetupError, match=rf"task insert has batch=.*(guard {name}|BatchContext)"):
        made.under(Named())  # type: ignore[arg-type]
    elsewhere = {kind.name: {"http": {"url": "http://x"}} for kind in shop.app if kind.policy.batch}
    made = AppHandler(shop.app, document({**handler, "kinds": elsewhere}))
    made.under(Named())  # type: ignore[arg-type]
    shop.app.bind_document(None)


async def test_under_a_sql_guard_each_task_of_a_call_has_one_effect_and_is_counted(
    client: Client, redis_url: str, tmp_path: Path
) -> None:
    queue, address = document({"python": {"app": "unused:app"}}), Address.from_url(redis_url)
    guard = SqlUnique(f"sqlite+aiosqlite:///{tmp_path}/bank.sqlite", queue="orders", limits=PATIENT)
    prepared(guard)
    made = AppHandler(shop.guarded, queue, address, transactions=True)
    rows = [shop.POISON, *range(200, 220)]
    await client.schedule_many(
        NewTask(row, task_id=str(row), delay_ms=0, kind="pay", version=1) for row in rows
    )
    seen = await guard.begin(task("pay:200", token=1))  # an earlier run, whose ack was lost
    await guard.finish(seen)
    async with working(redis_url, made=made, guard=guard) as worker:
        await has(client, waiting=0, in_flight=0, dead=1)
    assert effects(guard) == {str(row): 1 for row in range(201, 220)}
    counted = worker.counters.guarded
    assert (counted["finished"], counted["duplicate"], counted["abandoned"]) == (19, 1, 2)
    assert 200 not in shop.CALLS[0]
    await guard.close()
    guard.close_sync()
    shop.guarded.bind_document(None)

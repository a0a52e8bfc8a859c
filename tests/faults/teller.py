"""The handlers: each task moves money from one account to another, and writes down that it did.

Runs inside the workers. Nothing in here recognises a repetition, nor does any constraint of the tables: that is what
the guards are for.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import Pool

from tests.faults.points import note, reach

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task
    from sqlalchemy.ext.asyncio import AsyncConnection

PAY = text("UPDATE accounts SET balance = balance + :amount WHERE id = :account")
WRITE_DOWN = text(
    "INSERT INTO effects (task_id, token, worker, at, payer, payee, amount)"
    " VALUES (:task_id, :token, :worker, clock_timestamp(), :payer, :payee, :amount)"
)
RETURNED = "transfer whose transaction is about to end"

engine = create_async_engine(os.environ["FAULTS_DATABASE"], pool_size=20, pool_pre_ping=True)


async def charge(task: Task) -> None:
    """Have it done elsewhere, as by an external service: once the request is sent, it cannot be undone."""
    await note("start", task)
    await reach("before", task)
    await asyncio.shield(asyncio.create_task(_elsewhere(task)))
    await reach("after", task)


async def _elsewhere(task: Task) -> None:
    """Move it on a connection of its own, and commit it."""
    async with engine.begin() as connection:
        await move(task, connection)


async def transfer(task: Task, connection: AsyncConnection) -> None:
    """Move it in the guard's own transaction, which the guard commits when we have returned."""
    await note("start", task)
    await reach("before", task)
    await move(task, connection)
    (await connection.get_raw_connection()).info[RETURNED] = task


async def move(task: Task, connection: AsyncConnection) -> None:
    """One transaction; the lower account first, so that two transfers never wait for each other."""
    order: dict[str, Any] = task.payload
    amount = order["amount"]
    first, second = sorted([(order["payer"], -amount), (order["payee"], amount)])
    await connection.execute(PAY, {"account": first[0], "amount": first[1]})
    await reach("during", task)
    await connection.execute(PAY, {"account": second[0], "amount": second[1]})
    await connection.execute(
        WRITE_DOWN, {"task_id": task.id, "token": task.token, "worker": os.getpid(), **order}
    )


@event.listens_for(Pool, "checkin")
def _returned(connection: Any, record: Any) -> None:  # noqa: ANN401  SQLAlchemy's own, of the driver
    """The guard has committed what `transfer` wrote, and the worker does not know yet: that is after the effect."""
    task = record.info.pop(RETURNED, None)
    if task is not None and connection is not None:
        connection.run_async(lambda _driver: reach("after", task))

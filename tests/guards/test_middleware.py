"""Middleware of an App is outside of the guard: it sees what the guard refuses, and cannot undo what it recorded."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import App, BatchContext, Context, Seen, TaskRun
from delayq.guards import SqlUnique
from delayq.handlers.app import AppHandler

from tests.guards.sql_bank import EFFECT, PATIENT, effects, task
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.guards.conftest import Make

QUEUE = document({"python": {"app": "unused:app"}})
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


class Shop:
    """An App under a guard, with middleware that writes down how each run ends, and may fail then."""

    def __init__(self, make: Make) -> None:
        self.guard = make(SqlUnique, queue="orders", limits=PATIENT)
        self.app, self.seen, self.fails = App(), list[str](), False
        self.app.around_run(self.noted)

    @contextmanager
    def noted(self, run: TaskRun) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.seen.append(type(error).__name__)
            raise
        self.seen.append(f"done {[str(each) for each in run.outcomes]}")
        if self.fails:
            raise OSError("away")

    def handler(self) -> AppHandler:
        handler = AppHandler(self.app, QUEUE, transactions=True)
        handler.under(self.guard)
        return handler


async def pay(context: Context[Any, Any], order: int) -> None:  # noqa: ARG001 -- the task's
    await context.connection.execute(EFFECT, {"id": context.task.id, "token": 1})


def pay_in_thread(context: Context[Any, Any], order: int) -> None:  # noqa: ARG001 -- the task's
    context.connection.execute(EFFECT, {"id": context.task.id, "token": 1})


@pytest.mark.parametrize("function", [pay, pay_in_thread])
async def test_a_run_that_the_guard_refuses_is_seen_as_such(make: Make, function: object) -> None:
    shop = Shop(make)
    shop.app.task(name="pay")(function)  # type: ignore[call-overload]  # one of two types
    handler, todo = shop.handler(), replace(task(), kind="pay", kind_version=1)
    shop.fails = True
    with pytest.raises(RuntimeError, match="noted raised OSError: away"):
        await handler.call(todo)
    with pytest.raises(Seen):
        await handler.call(todo)
    assert shop.seen == ["done []", "Seen"]
    assert effects(shop.guard) == {todo.id: 1}
    await handler.close()


async def test_the_outcomes_of_a_batch_are_those_of_the_guard(make: Make) -> None:
    shop = Shop(make)

    @shop.app.task(batch=10)
    async def pay(context: BatchContext[Any, Any], orders: list[int]) -> list[Exception | None]:
        for each in context.tasks:
            await context.connection.execute(EFFECT, {"id": each.id, "token": 1})
        return [KeyError("odd") if order % 2 else None for order in orders]

    call = shop.handler().batches["pay", 1].call
    first, *later = [
        replace(task(str(n), token=token, body=b"%d" % n), kind="pay", kind_version=1)
        for token, n in ((1, 0), (2, 0), (2, 1), (2, 2))
    ]
    await call([first])
    outcomes = await call(later)
    assert [type(each).__name__ for each in outcomes] == ["Seen", "KeyError", "NoneType"]
    assert shop.seen == ["done ['None']", f"done {[str(each) for each in outcomes]}"]

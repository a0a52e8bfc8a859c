"""An App with a kind that needs the queue's SQL guard, and one that does not. See test_guarding.py."""

from __future__ import annotations

from typing import Any

from delayq import App, Context
from sqlalchemy import text

app = App("queue.yaml")
EFFECT = text("INSERT INTO effects VALUES (:task)")


@app.task(guard=True)
async def refund(context: Context[Any, Any], order: int) -> None:
    """Write in the guard's transaction."""
    del order
    await context.connection.execute(EFFECT, {"task": context.task.id})


@app.task
async def report(context: Context) -> None:
    """Take no connection: there is none outside of the guard."""
    assert context.connection is None

"""The shop's side: a database of orders, and what happens when the time to pay is over."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from delayq import Retry

if TYPE_CHECKING:
    from delayq import Task

# Beside the code; in a container, where that cannot be written, on a volume.
DATABASE = Path(os.environ.get("SHOP_DATABASE") or Path(__file__).parents[1] / "shop.db")
SCHEMA = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, status TEXT NOT NULL);
    CREATE TABLE runs (order_id INTEGER, attempt INTEGER, due_ms INTEGER, started_us INTEGER, outcome TEXT);
"""


class CardVaultError(Exception):
    """The order's card cannot be read: no attempt will ever succeed."""


def cancel_unpaid(task: Task) -> None:
    """Cancel an order unless it was paid. A plain function: delayq runs it in a thread, beside 31 others."""
    started_us = time.time_ns() // 1000
    number = task.payload["order"]
    with closing(connect()) as shop:
        kind, status = shop.execute("SELECT kind, status FROM orders WHERE id = ?", (number,)).fetchone()
        outcome = decide(kind, status, task.attempt)
        # One transaction: what the run came to is never recorded without its effect.
        with shop:
            if outcome == "cancelled":
                shop.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (number,))
            run = (number, task.attempt, task.due_ms, started_us, outcome)
            shop.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", run)
    if outcome == "gateway down":
        raise Retry("the payment gateway is down", delay="500ms")
    if outcome == "unreadable card":
        raise CardVaultError("the card's record is damaged")


def decide(kind: str, status: str, attempt: int) -> str:
    """Say what this run comes to. The kinds stand for what goes wrong in a real shop."""
    if status == "paid":
        return "left alone"
    if kind == "gateway" and attempt == 1:
        return "gateway down"
    return "unreadable card" if kind == "card" else "cancelled"


def connect() -> sqlite3.Connection:
    """Open the database; a writer waits for its turn."""
    return sqlite3.connect(DATABASE, timeout=10)

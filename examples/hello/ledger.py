"""Holds the shop's database against what was asked of the queue: every order, every run, every start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from statistics import quantiles

from shop import orders  # type: ignore[import-not-found]  # beside this file: not where mypy looks

ATTEMPTS = 3  # delivery.maxAttempts in queue.yaml
DAMAGED = 7  # of every 50 cards, this one
# What the runs of an order of each kind must have come to, in order, and the order's status after them.
EXPECTED = {
    "unpaid": (["cancelled"], "cancelled"),
    "paid": (["left alone"], "paid"),
    "gateway": (["gateway down", "cancelled"], "cancelled"),
    "card": (["unreadable card"] * ATTEMPTS, "unpaid"),
}


def kind(number: int) -> str:
    """Of every 50 orders 5 are paid in time, 5 meet a gateway that is down, 1 has a damaged card."""
    by_last_digit = {3: "gateway", 5: "paid"}
    return "card" if number % 50 == DAMAGED else by_last_digit.get(number % 10, "unpaid")


def write(numbers: range) -> None:
    """Begin with a new database of orders."""
    for leftover in orders.DATABASE.parent.glob(orders.DATABASE.name + "*"):
        leftover.unlink()
    with closing(orders.connect()) as shop, shop:
        shop.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait for each other
        shop.executescript(orders.SCHEMA)
        rows = [(n, kind(n), "paid" if kind(n) == "paid" else "unpaid") for n in numbers]
        shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)


@dataclass(frozen=True)
class Account:
    """What was found."""

    handled: int  # orders whose runs and status are exactly what they should be
    retried: int  # runs after the first
    dead: set[str]  # ids of the tasks that must be dead letters
    early: int
    late_ms: list[float]
    wrong: list[str]

    def quantile_ms(self, percent: int) -> float:
        """Return how late runs started: half of them, or 99 of 100, no later than this."""
        return quantiles(self.late_ms, n=100, method="inclusive")[percent - 1]


def account(numbers: range) -> Account:
    """Look at every order."""
    with closing(orders.connect()) as shop:
        status = dict(shop.execute("SELECT id, status FROM orders"))
        runs = list(shop.execute("SELECT order_id, due_ms, started_us, outcome FROM runs ORDER BY attempt"))
    outcomes: dict[int, list[str]] = {number: [] for number in numbers}
    for number, _, _, outcome in runs:
        outcomes[number].append(outcome)
    wrong = [
        f"order {n} ({kind(n)}): {status.get(n)} after {outcomes[n] or 'no run'}"
        for n in numbers
        if (outcomes[n], status.get(n)) != EXPECTED[kind(n)]
    ]
    late_ms = [started_us / 1000 - due_ms for _, due_ms, started_us, _ in runs]
    return Account(
        handled=len(numbers) - len(wrong),
        retried=len(runs) - sum(map(bool, outcomes.values())),
        dead={task_id(n) for n in numbers if kind(n) == "card"},
        early=sum(late < 0 for late in late_ms),
        late_ms=late_ms,
        wrong=wrong,
    )


def task_id(number: int) -> str:
    """Name an order's task."""
    return f"order-{number}"

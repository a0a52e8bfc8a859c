"""The truth: accounts and effects in PostgreSQL, and what they say when all is over.

Effects have no unique constraint on purpose: a transfer made twice is two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from sqlalchemy import Engine

ACCOUNTS: Final = 400
BALANCE: Final = 1_000
MAKE_ACCOUNTS: Final = "CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint NOT NULL)"
MAKE_EFFECTS: Final = """
CREATE TABLE effects (
  task_id text NOT NULL, token bigint NOT NULL, worker integer NOT NULL, at timestamptz NOT NULL,
  payer integer NOT NULL, payee integer NOT NULL, amount bigint NOT NULL
)
"""
FILL: Final = "INSERT INTO accounts SELECT id, :balance FROM generate_series(1, :accounts) AS id"
COUNT: Final = "SELECT count(*), count(DISTINCT task_id) FROM effects"
SUM: Final = "SELECT sum(balance) FROM accounts"
WRONG: Final = """
SELECT count(*) FROM accounts WHERE balance <> :balance
  + (SELECT coalesce(sum(amount), 0) FROM effects WHERE payee = accounts.id)
  - (SELECT coalesce(sum(amount), 0) FROM effects WHERE payer = accounts.id)
"""


@dataclass(frozen=True, slots=True)
class Truth:
    """What the database holds in the end."""

    rows: int
    distinct: int
    balanced: bool
    """The sum of all accounts is what it was, and each account is what the effects say."""


class Bank:
    """One database with accounts in it."""

    def __init__(self, url: str) -> None:
        self._engine: Engine = create_engine(url, poolclass=NullPool)

    def open(self, more: Iterable[str] = ()) -> None:
        """Make our tables, and those of `more` statements."""
        with self._engine.begin() as connection:
            for statement in (MAKE_ACCOUNTS, MAKE_EFFECTS, *more):
                connection.execute(text(statement))
            connection.execute(text(FILL), {"balance": BALANCE, "accounts": ACCOUNTS})

    def truth(self) -> Truth:
        with self._engine.begin() as connection:
            rows, distinct = connection.execute(text(COUNT)).one()
            total = connection.execute(text(SUM)).scalar_one()
            wrong = connection.execute(text(WRONG), {"balance": BALANCE}).scalar_one()
        return Truth(rows, distinct, balanced=total == ACCOUNTS * BALANCE and wrong == 0)


def order(chance: random.Random) -> dict[str, int]:
    """A transfer between two accounts, as the task's payload."""
    payer, payee = chance.sample(range(1, ACCOUNTS + 1), 2)
    return {"payer": payer, "payee": payee, "amount": chance.randint(1, 99)}

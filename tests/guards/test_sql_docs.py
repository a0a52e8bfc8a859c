"""docs/how-to/guards.md: its documents parse, its table is what the command prints, its handlers do what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq.contract import parse
from delayq.errors import Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.guards.sql.table import ddl
from delayq.handlers.importing import takes_connection
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.guards.sql_bank import sql, task
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from tests.guards.conftest import Database, Make

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = "\n".join(
    (HOW_TO / page).read_text() for page in ("guards.md", "../reference/sql-guards.md", "lock-guards.md")
)
URL = "postgresql://user:password@host:5432/shop"
POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", PAGE, re.MULTILINE | re.DOTALL)
    return [block for _, block in found]


class Base(DeclarativeBase):
    """The models of a shop."""


class Order(Base):
    """What the page calls Order."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int]
    status: Mapped[str]


@pytest.fixture
def guard(make: Make) -> SqlUnique:
    made = make(SqlUnique)
    sql(made, "INSERT INTO orders VALUES (7, 1, 'open')")
    return made


def namespace(database: Database) -> dict[str, Any]:
    """What the page's Python defines; blocks that only call something are compiled, and no more."""
    found: dict[str, Any] = {"Order": Order}
    for block in blocks("python"):
        compile(block, "docs/how-to/guards.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if "def " in block:
            exec(block.replace(URL, database.sync_url), found)  # noqa: S102 -- our own page
    return found


def status(guard: SqlUnique) -> str:
    [(found,)] = sql(guard, "SELECT status FROM orders")
    return str(found)


@POSTGRESQL
async def test_handlers_of_the_page_take_part_and_guards_in_ones_own_code_work(
    guard: SqlUnique, database: Database
) -> None:
    found = namespace(database)
    taking = ("cancel_unpaid", "cancel_with_orm", "cancel_unpaid_plain")
    assert [takes_connection(found[name]) for name in taking] == [True] * 3
    for name in ("cancel_unpaid", "cancel_with_orm"):
        async with guard(task(name)) as hold:
            await found[name](task(), connection=hold.connection)
            assert status(guard) == "open"
        assert status(guard) == "cancelled"
        sql(guard, "UPDATE orders SET status = 'open'")
    with guard(task("plain")) as hold:
        found["cancel_unpaid_plain"](task(), connection=hold.connection)
        assert status(guard) == "open"
    assert status(guard) == "cancelled"
    sql(guard, "UPDATE orders SET status = 'open'")
    await found["pay"](task())
    assert status(guard) == "cancelled"
    with pytest.raises(Seen):
        found["pay_plain"](task(token=2))
    found["pay_plain"](task("order-8"))
    await found["guard"].close()


def test_documents_of_the_page_are_valid_and_their_statements_are_accepted() -> None:
    made = [yaml.safe_load(block) for block in blocks("yaml")]
    assert len(made) == 4
    for each in made:
        spec = parse(document(handler={"python": {"app": "shop.tasks:app"}}, **each)).spec.guard
        assert spec is not None
        if spec.sql_optimistic:
            SqlOptimistic("sqlite:///x", select=spec.sql_optimistic.select, update=spec.sql_optimistic.update)
        if spec.sql_pessimistic:
            SqlPessimistic("sqlite:///x", select=spec.sql_pessimistic.select, wait=spec.sql_pessimistic.wait)


def test_the_table_of_the_page_is_the_one_that_the_command_prints() -> None:
    assert blocks("sql") == ["".join(f"{statement};\n" for statement in ddl("postgresql"))]

"""The guarded example pays each refund once, on a real PostgreSQL, though tasks break off and are scheduled again."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient

from tests.databases import Postgres
from tests.processes import DELAYQ, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "guarded"
PAID = [(1, 2000), (2, 2000), (3, 2000)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Postgres]:
    database = Postgres.start(tmp_path / "database")
    yield database
    database.kill()


@pytest.fixture
def example(tmp_path: Path, database: Postgres) -> Path:
    made = shutil.copytree(EXAMPLE, tmp_path / "guarded", ignore=shutil.ignore_patterns(".delayq"))
    (made / "secrets" / "shop-db" / "url").write_text(database.url().replace("+psycopg", ""))
    for statement in (made / "schema.sql").read_text().split(";\n")[:-1]:
        database.sql(statement)
    return made


def command(*argv: str, cwd: Path) -> Process:
    return Process.start(*argv, cwd=cwd, env={**os.environ, "DELAYQ_SECRETS_DIR": "secrets"})


def until_done(example: Path) -> None:
    """Until nothing waits and nothing runs; what is scheduled waits for a second at least."""
    url = (example / ".delayq" / "redis.url").read_text().strip()
    deadline = time.monotonic() + 60
    with SyncClient.from_document(example / "queue.yaml", url=url) as refunds:
        counts = refunds.counts()
        while counts.waiting + counts.retrying + counts.in_flight:
            assert time.monotonic() < deadline, counts
            time.sleep(0.1)
            counts = refunds.counts()
        assert counts.dead == 0


def test_every_refund_is_paid_once_however_often_it_is_scheduled(example: Path, database: Postgres) -> None:
    """As its README says, command by command."""
    assert command(DELAYQ, "guard", "init", "--config", "queue.yaml", cwd=example).wait(timeout_s=60) == 0
    run = command(DELAYQ, "run", "queue.yaml", cwd=example)
    try:
        run.wait_line("due 0", timeout_s=60)
        for _ in range(2):
            assert command(sys.executable, "schedule.py", cwd=example).wait(timeout_s=60) == 0
            until_done(example)
            assert database.sql("SELECT customer, cents FROM accounts ORDER BY customer") == PAID
        [(done,)] = database.sql("SELECT count(*) FROM delayq_processed WHERE state = 'done'")
        assert done == 12
        seen = command(DELAYQ, "guard", "seen", "queue.yaml", "refund-7", cwd=example)
        assert seen.wait(timeout_s=60) == 0
        assert seen.output == "refund-7 has taken effect"
    finally:
        run.stop(timeout_s=60)

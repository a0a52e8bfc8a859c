"""The guarded example pays each refund once, on a real PostgreSQL, though tasks break off and are scheduled again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.databases import Postgres
from tests.examples.running import client, copied, done, served
from tests.processes import DELAYQ

if TYPE_CHECKING:
    from pathlib import Path

PAID: Final = [(1, 2000), (2, 2000), (3, 2000)]
ENV: Final = {"DELAYQ_SECRETS_DIR": "secrets"}


def until_done(example: Path) -> None:
    """Until nothing waits and nothing runs; what is scheduled waits for a second at least."""
    deadline = time.monotonic() + 60
    with client(example) as refunds:
        counts = refunds.counts()
        while counts.waiting + counts.retrying + counts.in_flight:
            assert time.monotonic() < deadline, counts
            time.sleep(0.1)
            counts = refunds.counts()
        assert counts.dead == 0


def test_every_refund_is_paid_once_however_often_it_is_scheduled(tmp_path: Path) -> None:
    """As its README says, command by command."""
    database, example = Postgres.start(tmp_path / "database"), copied("guarded", tmp_path)
    try:
        (example / "secrets" / "shop-db" / "url").write_text(database.url().replace("+psycopg", ""))
        for statement in (example / "schema.sql").read_text().split(";\n")[:-1]:
            database.sql(statement)
        done(DELAYQ, "guard", "init", "queue.yaml", cwd=example, env=ENV)
        with served(example, **ENV):
            for _ in range(2):
                done("python", "schedule.py", cwd=example, env=ENV)
                until_done(example)
                assert database.sql("SELECT customer, cents FROM accounts ORDER BY customer") == PAID
            [(count,)] = database.sql("SELECT count(*) FROM delayq_processed WHERE state = 'done'")
            assert count == 12
            seen = done(DELAYQ, "guard", "seen", "queue.yaml", "refund-7", cwd=example, env=ENV)
            assert seen == "refund-7 has taken effect"
    finally:
        database.kill()

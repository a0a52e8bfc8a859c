"""Handlers with Django's ORM go on after a restart of the database, in the same worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import NewTask

from tests.databases import PASSWORD, USER, Postgres
from tests.process.fleet import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import NewFleet

SLOTS, EACH = 4, 20
RUNS = [(None, "default"), (None, "checked"), (None, "kept"), ("later", "checked")]
"""Kind and connection."""


def orders(name: str) -> list[NewTask]:
    return [
        NewTask(using, delay_ms=0, kind=kind, task_id=f"{name}-{using}-{n}")
        for n in range(EACH)
        for kind, using in RUNS
    ]


@pytest.mark.parametrize("graceful", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_restarted_database_costs_no_dead_letter_and_with_health_checks_no_attempt(
    new_fleet: NewFleet, tmp_path: Path, *, graceful: bool
) -> None:
    """Each thread has connections from before; Django finds out at the first use, or by its health check."""
    postgres = Postgres.start(tmp_path / "postgres")
    try:
        postgres.sql("CREATE TABLE orders (task text PRIMARY KEY, attempt int, pid int)")
        kinds = {"later": {"python": {"callable": "django_shop:store_later"}}}
        spec = {
            "handler": {"python": {"callable": "django_shop:store"}, "kinds": kinds},
            "worker": {"concurrency": SLOTS},
            "delivery": {"maxAttempts": 10, "backoff": {"delaysSeconds": [1]}},
        }
        environment = {"SHOP_USER": USER, "SHOP_PASSWORD": PASSWORD, "SHOP_PORT": str(postgres.port)}
        fleet = new_fleet(spec, environment=environment)
        fleet.start_all("worker", "scanner")

        def stored(number: int) -> None:
            until(lambda: postgres.sql("SELECT count(*) FROM orders") == [(number,)], "stored")

        with fleet.client() as client:
            client.schedule_many(orders("early"))
            stored(EACH * len(RUNS))
            if not graceful:
                postgres.kill()
            postgres.restart()
            client.schedule_many(orders("late"))
            stored(2 * EACH * len(RUNS))
            assert client.counts().dead == 0
        failed = dict(postgres.sql("SELECT task, attempt - 1 FROM orders WHERE attempt > 1"))
        assert {task.split("-")[1] for task in failed} <= {"kept"}
        assert sum(failed.values()) <= SLOTS, "each thread finds out once"
        assert len(postgres.sql("SELECT DISTINCT pid FROM orders")) == 1
    finally:
        postgres.stop()

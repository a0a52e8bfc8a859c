"""Handlers with Django's ORM go on after a restart of the database, in the same worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask

from tests.databases import PASSWORD, USER, Postgres
from tests.process.fleet import until
from tests.processes import Process

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What django_app.py prints: for each case the outcomes of two runs, and the connections that each leaves open."""
    postgres = Postgres.start(tmp_path_factory.mktemp("postgres"))
    try:
        postgres.sql("CREATE TABLE app_orders (id serial PRIMARY KEY)")
        env = {"SHOP_USER": USER, "SHOP_PASSWORD": PASSWORD, "SHOP_PORT": str(postgres.port)}
        program = Process.start(sys.executable, "-m", "tests.process.django_app", cwd=ROOT, env=env)
        assert program.wait() == 0, program.output
        found: dict[str, Any] = json.loads(program.output.splitlines()[-1])
        return found
    finally:
        postgres.stop()


@pytest.mark.xdist_group("django_app")
@pytest.mark.parametrize(("using", "kept"), [("default", 0), ("checked", 1)])
def test_the_middleware_closes_stale_connections_of_coroutine_functions(
    runs: dict[str, Any], using: str, kept: int
) -> None:
    """Without it, the second run uses the connection that broke. With it, CONN_MAX_AGE holds after each run, too."""
    assert runs[f"coroutine {using} False"] == [["done", "OperationalError"], [1, 0]]
    assert runs[f"coroutine {using} True"] == [["done", "done"], [kept, kept]]


@pytest.mark.xdist_group("django_app")
@pytest.mark.parametrize("middleware", [False, True])
def test_plain_functions_need_no_middleware_for_it(runs: dict[str, Any], *, middleware: bool) -> None:
    assert runs[f"plain default {middleware}"] == [["done", "done"], [0, 0]]
    assert runs[f"plain checked {middleware}"] == [["done", "done"], [1, 1]]

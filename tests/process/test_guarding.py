"""A guard whose database is away closes the door before the claims; no attempt is charged, and all runs later."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from sqlalchemy import make_url

from tests.databases import Postgres
from tests.process.fleet import samples, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

SPEC: dict[str, Any] = {
    "guard": {"sqlUnique": {"databaseSecretRef": {"name": "database"}}},
    "delivery": {"leaseDurationSeconds": 2, "maxAttempts": 1, "maxCrashes": 100},
}


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    """One of the test's own, which it may stop."""
    server = Postgres.start(tmp_path / "postgres")
    yield server
    server.stop()


def guarded_fleet(new_fleet: NewFleet, postgres: Postgres) -> Fleet:
    fleet = new_fleet(SPEC)
    fleet.environment["DELAYQ_DATABASE_URL"] = postgres.url()
    return fleet


def make_table(fleet: Fleet, postgres: Postgres) -> None:
    from delayq.guards import SqlUnique  # noqa: PLC0415 -- the other tests of this folder need no SQLAlchemy

    guard = SqlUnique(postgres.url(), queue=fleet.queue)
    guard.install_sync()
    guard.close_sync()


def guard_up(worker: Process) -> float:
    [(_, value)] = samples(worker)["delayq_worker_guard_up"]
    return value


def ends(worker: Process) -> dict[str, float]:
    return {labels["outcome"]: value for labels, value in samples(worker)["delayq_worker_guard_runs"]}


def events(process: Process, name: str) -> list[dict[str, Any]]:
    lines = [line for line in process.output.splitlines() if line.startswith("{")]
    return [entry for entry in map(json.loads, lines) if entry["event"] == name]


def closed(worker: Process) -> list[dict[str, Any]]:
    """Each time the circuit breaker opened."""
    return events(worker, "guard_breaker_opened")


def test_nothing_is_claimed_while_the_database_is_away(new_fleet: NewFleet, postgres: Postgres) -> None:
    """From the start on: a worker looks at its guard before it claims; tasks wait in their places, uncharged."""
    fleet = guarded_fleet(new_fleet, postgres)
    make_table(fleet, postgres)
    postgres.stop()
    worker = fleet.start("worker")
    assert guard_up(worker) == 0
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many([NewTask({}, delay_ms=0, task_id=f"task-{n}") for n in range(50)])
        postgres.launch()
        until(lambda: fleet.stats(redis)["acked"] == 50, "all done", timeout_s=60)
        assert fleet.stats(redis)["claimed"] == 50
        assert fleet.stats(redis)["retried"] == 0
    assert guard_up(worker) == 1
    assert ends(worker)["finished"] == 50


def test_the_first_task_that_finds_out_closes_the_door_and_a_look_opens_it(
    new_fleet: NewFleet, postgres: Postgres
) -> None:
    """One round at most is put off, however many are due, and no attempt is charged: each may have only one."""
    fleet = guarded_fleet(new_fleet, postgres)
    make_table(fleet, postgres)
    worker, _ = fleet.start_all("worker", "scanner")
    until(lambda: guard_up(worker) == 1, "the guard serves", timeout_s=60)
    with fleet.client() as client, fleet.server.client() as redis:
        postgres.kill()
        client.schedule_many([NewTask({}, delay_ms=0, task_id=f"task-{n}") for n in range(500)])
        until(lambda: guard_up(worker) == 0, "the door is closed", timeout_s=60)
        postgres.launch()
        until(lambda: fleet.stats(redis)["acked"] == 500, "all done", timeout_s=60)
        assert fleet.stats(redis)["retried"] <= 2 * 32  # slots: a round, and one that was claimed meanwhile
        assert client.counts().dead == 0
    assert [len(runs) for runs in fleet.starts().values()] == [1] * 500
    assert events(worker, "guard_breaker_opened")
    assert events(worker, "guard_breaker_closed")
    assert "password" not in worker.output


def test_a_missing_table_is_said_with_the_command_that_makes_it(
    new_fleet: NewFleet, postgres: Postgres
) -> None:
    fleet = guarded_fleet(new_fleet, postgres)
    worker = fleet.start("worker")
    until(lambda: events(worker, "guard_breaker_opened"), "it says so", timeout_s=60)
    assert "delayq guard init" in events(worker, "guard_breaker_opened")[0]["error"]
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({}, delay_ms=0)
        make_table(fleet, postgres)
        until(lambda: fleet.stats(redis)["acked"] == 1, "done", timeout_s=60)


def test_a_door_that_is_closed_again_as_soon_as_it_opens_opens_ever_more_slowly(
    new_fleet: NewFleet, postgres: Postgres
) -> None:
    """Looks succeed and runs do not, for want of connections: tasks must not go round and round."""
    fleet = guarded_fleet(new_fleet, postgres)
    make_table(fleet, postgres)
    postgres.sql("CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT 2")
    postgres.sql("GRANT ALL ON delayq_processed TO few")
    url = make_url(postgres.url()).set(username="few", password="few")  # noqa: S106  of a server on loopback
    fleet.environment["DELAYQ_DATABASE_URL"] = url.render_as_string(hide_password=False)
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule_many([NewTask({}, delay_ms=0, task_id=f"task-{n}") for n in range(2000)])
        until(lambda: len(closed(worker)) >= 6, "closed six times", timeout_s=120)
        times = [datetime.fromisoformat(each["time"]) for each in closed(worker)]
        # Pauses of 0.5, 1, 2, 4 and 5 s, less a quarter at most; without them it is closed three times a second.
        assert (times[5] - times[0]).total_seconds() > 5
        assert client.counts().dead == 0

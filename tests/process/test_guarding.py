"""A worker claims nothing while its guard cannot serve; no attempt is charged, and all runs later."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from sqlalchemy import make_url

from tests.databases import Postgres
from tests.process.fleet import said, samples, until, wait_said
from tests.process.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

SPEC: dict[str, Any] = {
    "guard": {"sqlUnique": {"databaseSecretRef": {"name": "database"}}},
    "delivery": {"leaseDurationSeconds": 2, "maxAttempts": 1, "maxCrashes": 100},
}
SLOTS = 32


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    """One of the test's own, which it may stop."""
    server = Postgres.start(tmp_path / "postgres")
    yield server
    server.stop()


@pytest.fixture
def fleet(new_fleet: NewFleet, postgres: Postgres) -> Fleet:
    return new_fleet(SPEC, environment={"DELAYQ_DATABASE_URL": postgres.url()})


def make_table(fleet: Fleet, postgres: Postgres) -> None:
    from delayq.guards import SqlUnique  # noqa: PLC0415 -- the other tests of this folder need no SQLAlchemy

    guard = SqlUnique(postgres.url(), queue=fleet.queue)
    guard.install_sync()
    guard.close_sync()


def tasks(name: str, count: int) -> list[NewTask]:
    return [NewTask({}, delay_ms=0, task_id=f"{name}-{n}") for n in range(count)]


def guard_up(worker: Process) -> float:
    [(_, value)] = samples(worker)["delayq_worker_guard_up"]
    return value


def test_nothing_is_claimed_while_the_guard_cannot_serve(fleet: Fleet, postgres: Postgres) -> None:
    """The error about a missing table has the command that creates it. Tasks wait in their places, uncharged.

    When the database goes away, the first task that finds out opens the breaker: one round at most is put off, however
    many are due, and no attempt is charged, of which each may have only one. A look closes the breaker.
    """
    worker, _ = fleet.start_all("worker", "scanner")
    assert guard_up(worker) == 0
    assert "delayq guard init" in wait_said(worker, "guard_breaker_opened")["error"]
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(tasks("early", 50))
        make_table(fleet, postgres)
        until(lambda: fleet.stats(redis)["acked"] == 50, "all done")
        assert fleet.stats(redis)["claimed"] == 50
        assert fleet.stats(redis)["retried"] == 0
        assert guard_up(worker) == 1
        runs = {labels["outcome"]: n for labels, n in samples(worker)["delayq_worker_guard_runs"]}
        assert runs["finished"] == 50
        postgres.kill()
        client.schedule_many(tasks("late", 500))
        until(lambda: guard_up(worker) == 0, "the breaker is open")
        postgres.launch()
        until(lambda: fleet.stats(redis)["acked"] == 550, "all done")
        assert fleet.stats(redis)["retried"] <= 2 * SLOTS  # a round, and one that was claimed meanwhile
        assert client.counts().dead == 0
    assert [len(runs) for runs in fleet.starts().values()] == [1] * 550
    assert len(said(worker, "guard_breaker_closed")) >= 2
    assert said(worker, "guard_checked") == []
    assert "password" not in worker.output


def test_a_breaker_that_opens_again_and_again_stays_open_ever_longer(
    fleet: Fleet, postgres: Postgres
) -> None:
    """Looks succeed and runs do not, for want of connections: tasks must not go round and round."""
    make_table(fleet, postgres)
    postgres.sql("CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT 2")
    postgres.sql("GRANT ALL ON delayq_processed TO few")
    url = make_url(postgres.url()).set(username="few", password="few")  # noqa: S106  of a server on loopback
    fleet.environment["DELAYQ_DATABASE_URL"] = url.render_as_string(hide_password=False)
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule_many(tasks("task", 2000))
        until(lambda: len(said(worker, "guard_breaker_opened")) >= 5, "opened five times")
        times = [datetime.fromisoformat(each["time"]) for each in said(worker, "guard_breaker_opened")]
        # Pauses of 0.5, 1, 2 and 4 s, less a quarter at most; without them it opens three times a second.
        assert (times[4] - times[0]).total_seconds() > 3
        assert client.counts().dead == 0


def test_kinds_without_the_guard_go_on_while_it_cannot_serve(new_fleet: NewFleet, postgres: Postgres) -> None:
    """An HTTP kind and a kind of the App run beside one that asks for the guard, which takes effect once, later."""
    with receiving(200) as (url, pushed):
        handler = {"python": {"app": "guarded_shop:app"}, "kinds": {"push": {"http": {"url": url}}}}
        guard = {"appliesTo": "NamedKinds", **SPEC["guard"]}
        fleet = new_fleet(
            SPEC | {"handler": handler, "guard": guard}, environment={"DELAYQ_DATABASE_URL": postgres.url()}
        )
        make_table(fleet, postgres)
        postgres.sql("CREATE TABLE effects (task text)")
        worker, _ = fleet.start_all("worker", "scanner")
        with fleet.client() as client, fleet.server.client() as redis:
            client.schedule_many(shop_tasks("early", 20))
            until(lambda: fleet.stats(redis)["acked"] == 60, "all kinds ran")
            assert len(said(worker, "guard_checked")) == 1
            assert said(worker, "guard_breaker_closed") == []
            runs = {labels["outcome"]: n for labels, n in samples(worker)["delayq_worker_guard_runs"]}
            assert runs["finished"] == 20
            postgres.kill()
            until(lambda: guard_up(worker) == 0, "the breaker is open")
            client.schedule_many(shop_tasks("late", 20))
            until(lambda: fleet.stats(redis)["acked"] == 100, "the kinds without the guard ran")
            assert len(pushed) == 40
            assert client.counts().dead == 0
            postgres.launch()
            until(lambda: fleet.stats(redis)["acked"] == 120, "the guarded kind ran")
            assert client.counts().dead == 0
        effects = [task for (task,) in postgres.sql("SELECT task FROM effects")]
        assert sorted(effects) == sorted(
            f"refund:{name}-{n}" for name in ("early", "late") for n in range(20)
        )


def shop_tasks(name: str, count: int) -> list[NewTask]:
    """Tasks of three kinds, `count` of each."""
    payloads: dict[str, dict[str, int]] = {"refund": {"order": 1}, "report": {}, "push": {}}
    return [
        NewTask(payload, delay_ms=0, task_id=f"{name}-{n}", kind=kind)
        for kind, payload in payloads.items()
        for n in range(count)
    ]

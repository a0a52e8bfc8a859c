"""A worker that lacks a thread or a descriptor for its SQL guard charges no task, and says why.

The limits are the kernel's own, set on a running worker.
"""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import make_url

from tests.databases import MariaDB, Postgres
from tests.process.fleet import samples, until, wait_said
from tests.process.test_starved import NO_USER, limit_descriptors, schedule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

TASKS = 100
_, MOST_THREADS = resource.getrlimit(resource.RLIMIT_NPROC)
SPEC: dict[str, Any] = {
    "worker": {"concurrency": TASKS},
    "guard": {"sqlUnique": {"databaseSecretRef": {"name": "database"}}},
    "delivery": {"maxAttempts": 1, "maxCrashes": 1},
}
OTHER_USER = (
    *("setpriv", "--reuid", str(NO_USER), "--clear-groups"),
    *("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override", "--"),
)
"""Root's threads have no limit; this user may read root's files."""


FULL = [pytest.param(driver, marks=pytest.mark.full) for driver in ("postgresql+asyncpg", "mysql")]


@pytest.fixture(params=["sqlite", "postgresql", *FULL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database, by a driver with asyncio; a server by a name to resolve."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/test.sqlite"
        return
    kind: Any = MariaDB if request.param == "mysql" else Postgres
    server = kind.start(tmp_path / "server")
    found = make_url(server.url()).set(host="localhost", drivername=request.param)
    yield found.render_as_string(hide_password=False)
    server.stop()


def started(fleet: Fleet, url: str, *before: str) -> Process:
    """Return a worker whose guard serves."""
    from delayq.guards import SqlUnique  # noqa: PLC0415 -- the other tests of this folder need no SQLAlchemy

    guard = SqlUnique(url, queue=fleet.queue)
    guard.install_sync()
    guard.close_sync()
    worker = fleet.start("worker", before=before)
    until(lambda: samples(worker)["delayq_worker_guard_up"][0][1] == 1, "the guard serves")
    return worker


def limit_threads(worker: Process, threads: str) -> None:
    """Only a process of the same user may."""
    subprocess.run([*OTHER_USER, "prlimit", f"--pid={worker.pid}", f"--nproc={threads}:"], check=True)


def check_none_was_charged(fleet: Fleet) -> None:
    with fleet.server.client() as redis:
        fleet.wait_drained(redis)
        stats = fleet.stats(redis)
    assert (stats["acked"], stats["buried"]) == (TASKS, 0)
    assert {(len(runs), runs[0].attempt) for runs in fleet.starts().values()} == {(1, 1)}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_guard_without_a_thread_charges_no_task(new_fleet: NewFleet, url: str) -> None:
    """The driver has one for each connection."""
    fleet = new_fleet(SPEC, environment={"DELAYQ_DATABASE_URL": url})
    worker = started(fleet, url, *OTHER_USER)
    limit_threads(worker, "1")
    schedule(fleet, TASKS)
    assert "can't start new thread" in wait_said(worker, "slots_withheld")["error"]
    limit_threads(worker, "unlimited" if MOST_THREADS == resource.RLIM_INFINITY else str(MOST_THREADS))
    check_none_was_charged(fleet)


def test_a_guard_without_a_descriptor_charges_no_task(new_fleet: NewFleet, url: str) -> None:
    fleet = new_fleet(SPEC, environment={"DELAYQ_DATABASE_URL": url})
    worker = started(fleet, url)
    limit_descriptors(worker, room=0)
    schedule(fleet, TASKS)
    error = wait_said(worker, "slots_withheld")["error"]
    assert "open no more files" in error or "Too many open files" in error
    limit_descriptors(worker, room=4 * TASKS)
    check_none_was_charged(fleet)

"""Workers die, or seem to, and the business is asked what became of their tasks: whole processes, real signals."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from delayq import NewTask
from delayq.protocol.results import State

from tests.process.fleet import said, until
from tests.process.local_home import Home, stopped
from tests.processes import delayq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from delayq import SyncClient

    from tests.process.fleet import Fleet, NewFleet

TASKS = 20
IDS = [f"t{n}" for n in range(TASKS)]


SPEC: dict[str, Any] = {
    "worker": {"concurrency": TASKS},
    "delivery": {"leaseDurationSeconds": 2, "maxCrashes": 50, "handlerTimeoutSeconds": 3600},
    "recovery": {
        "check": {
            "python": {"callable": "recovery_check:state"},
            "timeoutSeconds": 30,
            "retryAfterSeconds": 600,
        }
    },
}


def gone(client: SyncClient, ids: Iterable[str]) -> None:
    for each in ids:
        until(lambda id_=each: client.get(id_) is None, f"{each} is done")  # type: ignore[misc]


def runs(fleet: Fleet) -> dict[str, int]:
    return {name: len(found) for name, found in fleet.starts().items()}


def test_of_tasks_whose_worker_seemed_dead_only_those_run_again_that_the_business_wants(
    new_fleet: NewFleet,
) -> None:
    """Every lease is asked about once, however many could ask.

    The worker was only frozen. When it goes on, its acks are refused, except of waiting tasks: it has their leases.
    """
    fleet = new_fleet(SPEC)
    done, again, dead, waiting = (set(IDS[at::4]) for at in range(4))
    verdicts = {"complete": done, "requeue": again, "bury": dead, "wait": waiting}
    for verdict, ids in verdicts.items():
        for each in ids:
            (fleet.ledger_dir / f"{each}.verdict").write_text(verdict)
    with fleet.client() as client, fleet.server.client() as redis:
        frozen = fleet.start("worker")
        sleep = {"do": "sleep", "seconds": 1}
        client.schedule_many([NewTask(sleep, delay_ms=0, task_id=each) for each in IDS])
        for each in IDS:
            fleet.wait_entry("start", each)
        frozen.pause()
        *_, worker = fleet.start_all("scanner", "scanner", "reaper", "worker")
        for each in again:  # suspects run in one group or more, one after the other
            assert fleet.wait_entry("start", each, nth=2).pid == worker.pid
        gone(client, done | again)
        until(lambda: redis.zcard(fleet.keys.dlq) == len(dead), "the dead are buried")
        until(lambda: fleet.stats(redis)["waited"] == len(waiting), "the others wait")
        letter = client.get(min(dead))
        frozen.resume()
        until(lambda: len(said(frozen, "lease_lost")) >= len(done | again | dead), "those acks are refused")
        gone(client, waiting)
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).tasks == dead
        stats = fleet.stats(redis)
    assert runs(fleet) == {each: 2 if each in again else 1 for each in IDS}
    assert [len(fleet.entries("asked", each)) for each in IDS] == [1] * TASKS
    assert [stats[name] for name in ("completed", "reclaimed", "buried", "waited")] == [5] * 4
    assert stats["acked"] == len(again | waiting)
    assert letter is not None
    assert (letter.state, letter.failed.crashes, letter.failed.reason) == (State.DEAD, 1, "recovered")


def sql(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file, timeout=30)) as database, database:
        return database.execute(statement).fetchall()


def test_the_guards_table_tells_a_task_that_took_effect_from_one_that_did_not(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    """One worker dies before it commits, the other after, before it could ack."""
    file, secret = tmp_path / "bank.sqlite", tmp_path / "secrets" / "bank"
    secret.mkdir(parents=True)
    (secret / "url").write_text(f"sqlite:///{file}")
    guarded = SPEC | {
        "handler": {"python": {"callable": "recovery_check:transfer"}},
        "guard": {"sqlUnique": {"databaseSecretRef": {"name": "bank"}}},
        "recovery": {"check": {"guard": {}, "retryAfterSeconds": 1}},
    }
    fleet = new_fleet(guarded, environment={"DELAYQ_SECRETS_DIR": str(secret.parent)})
    init = delayq("guard", "init", str(fleet.config), env=fleet.environment)
    assert init.wait() == 0, init.output
    sql(file, "CREATE TABLE transfers (id TEXT)")
    with fleet.client() as client, fleet.server.client() as redis:
        first = fleet.start("worker")
        client.schedule(None, delay_ms=0, task_id="before")
        fleet.wait_entry("start", "before")
        first.kill()
        second = fleet.start("worker")
        client.schedule(None, delay_ms=0, task_id="after")
        fleet.wait_entry("start", "after")
        fleet.server.pause()
        (fleet.ledger_dir / "after.enough").touch()
        until(lambda: sql(file, "SELECT id FROM transfers") == [("after",)], "committed")
        second.kill()
        fleet.server.resume()
        fleet.start("scanner")
        gone(client, ["after"])
        (fleet.ledger_dir / "before.enough").touch()
        fleet.start("worker")
        gone(client, ["before"])
        stats = fleet.stats(redis)
    assert runs(fleet) == {"before": 2, "after": 1}
    assert sql(file, "SELECT id FROM transfers ORDER BY id") == [("after",), ("before",)]
    assert (stats["completed"], stats["reclaimed"], stats["acked"]) == (1, 1, 1)


BOOKS = """\
from pathlib import Path

def state(task):
    with (Path(__file__).parent / "asked").open("a") as out:
        out.write(task.id)
    return "complete"
"""
ASKS = """\
  delivery: {leaseDurationSeconds: 2}
  recovery: {check: {python: {callable: "shop_books:state"}}}
"""


def test_delayq_run_asks_a_check_beside_the_document(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.dir.mkdir()
    home.write("hang", ASKS)
    (home.dir / "shop_books.py").write_text(BOOKS)
    with stopped(home.ready()) as run, home.client() as client:
        client.schedule({}, task_id="a", delay_ms=0)
        until((home.dir / "hanging").exists, "it runs")
        os.kill(home.child(run, "worker"), signal.SIGKILL)
        gone(client, ["a"])
        reported = run.wait_line('"event": "recovered"')
        home.note(run)
    home.wait_gone()
    assert '"outcome": "completed"' in reported
    assert (home.dir / "asked").read_text() == "a"

"""Workers die, or seem to, and the business is asked what became of their tasks: whole processes, real signals."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.results import State

from tests.process.fleet import said, until, wait_said
from tests.process.local_home import Home, stopped
from tests.processes import delayq

if TYPE_CHECKING:
    from pathlib import Path

    from delayq import SyncClient

    from tests.process.fleet import Entry, Fleet, NewFleet, Role
    from tests.processes import Process

TASKS = 20
DAY_SECONDS = 86_400
ROW = """
INSERT INTO delayq_processed (queue, task_id, state, token, version, began_at, done_at)
VALUES (?, ?, 'done', 1, 1, datetime('now', ?), datetime('now', ?))
"""
WAIT_SECONDS = 3
ENDLESS = {"do": "sleep", "seconds": 3600}


def spec(callable_: str = "books:state", **check: Any) -> dict[str, Any]:  # noqa: ANN401
    asked = {
        "python": {"callable": callable_},
        "timeoutSeconds": 30,
        "retryAfterSeconds": WAIT_SECONDS,
    } | check
    return {
        "worker": {"concurrency": TASKS},
        "delivery": {"leaseDurationSeconds": 2, "maxCrashes": 50, "handlerTimeoutSeconds": 3600},
        "recovery": {"check": asked},
        "reaper": {"sweepPeriodSeconds": 1},
    }


def say(fleet: Fleet, task_id: str, verdict: str) -> None:
    """Write into the books."""
    (fleet.ledger_dir / f"{task_id}.verdict").write_text(verdict)


def asked(fleet: Fleet, task_id: str) -> list[Entry]:
    return [entry for entry in fleet.ledger() if (entry.event, entry.id) == ("asked", task_id)]


def started(fleet: Fleet, client: SyncClient, *ids: str, **payload: Any) -> Process:  # noqa: ANN401
    """A worker that runs these tasks, and would for an hour."""
    worker = fleet.start("worker")
    client.schedule_many([NewTask(ENDLESS | payload, delay_ms=0, task_id=each) for each in ids])
    for each in ids:
        fleet.wait_entry("start", each)
    return worker


def gone(client: SyncClient, task_id: str) -> None:
    until(lambda: client.get(task_id) is None, f"{task_id} is done")


@pytest.mark.parametrize(
    ("roles", "callable_"),
    [
        (("scanner",), "books:state"),
        pytest.param(("reaper",), "books:state_sync", marks=pytest.mark.full),
        (("scanner", "scanner", "reaper", "reaper"), "books:state_sync"),
    ],
    ids=["scanner", "reaper", "all"],
)
def test_of_tasks_whose_worker_was_killed_only_those_run_again_that_the_business_wants(
    new_fleet: NewFleet, roles: tuple[Role, ...], callable_: str
) -> None:
    """Every lease is asked about once, however many could ask."""
    fleet = new_fleet(spec(callable_))
    ids = [f"t{n}" for n in range(TASKS)]
    done, dead = set(ids[::2]), set(ids[1::4])
    for each in ids:
        say(fleet, each, "complete" if each in done else "bury" if each in dead else "requeue")
    with fleet.client() as client, fleet.server.client() as redis:
        started(fleet, client, *ids, seconds=10).kill()
        fleet.start_all(*roles)
        again = fleet.start("worker")  # which runs suspects in one group or more, one after the other
        for each in set(ids) - done - dead:
            assert fleet.wait_entry("start", each, nth=2).pid == again.pid
        until(lambda: redis.hlen(fleet.keys.tasks) == len(dead), "the done are forgotten")
        until(lambda: redis.zcard(fleet.keys.dlq) == len(dead), "the dead are buried")
        fleet.snapshot(redis).check()
        stats = fleet.stats(redis)
        letter = client.get(min(dead))
    assert {name: len(runs) for name, runs in fleet.starts().items()} == {
        each: 1 if each in done | dead else 2 for each in ids
    }
    assert {each: len(asked(fleet, each)) for each in ids} == dict.fromkeys(ids, 1)
    assert (stats["completed"], stats["buried"], stats["reclaimed"]) == (10, 5, 5)
    assert letter is not None
    assert (letter.state, letter.failed.crashes, letter.failed.reason) == (State.DEAD, 1, "recovered")


@pytest.mark.parametrize("verdict", ["complete", "requeue"])
def test_a_worker_that_wakes_up_after_the_verdict_changes_nothing(new_fleet: NewFleet, verdict: str) -> None:
    """Frozen past its leases; when it goes on, its handlers return, and their acks are refused."""
    fleet = new_fleet(spec())
    ids = [f"t{n}" for n in range(TASKS)]
    for each in ids:
        say(fleet, each, verdict)
    with fleet.client() as client, fleet.server.client() as redis:
        frozen = started(fleet, client, *ids, seconds=1)
        frozen.pause()
        runs = 1
        if verdict == "requeue":
            fleet.start("worker")
            runs = 2
        fleet.start("scanner")
        for each in ids:
            gone(client, each)
        settled = fleet.stats(redis)
        frozen.resume()
        until(lambda: len(said(frozen, "lease_lost")) >= TASKS, "every ack is refused")
        assert fleet.stats(redis) == settled
        fleet.snapshot(redis).check()
    assert {len(found) for found in fleet.starts().values()} == {runs}
    assert (settled["completed"], settled["acked"]) == ((TASKS, 0) if verdict == "complete" else (0, TASKS))


def test_a_worker_that_wakes_up_while_its_task_is_to_wait_may_finish_it(new_fleet: NewFleet) -> None:
    """Nobody else got the task: the verdict wait takes nothing away from its holder."""
    fleet = new_fleet(spec(retryAfterSeconds=600))
    ids = [f"t{n}" for n in range(TASKS)]
    for each in ids:
        say(fleet, each, "wait")
    with fleet.client() as client, fleet.server.client() as redis:
        frozen = started(fleet, client, *ids, seconds=1)
        frozen.pause()
        fleet.start("scanner")
        until(lambda: fleet.stats(redis)["waited"] == TASKS, "all of them wait")
        frozen.resume()
        for each in ids:
            gone(client, each)
        assert fleet.stats(redis)["acked"] == TASKS
    assert {len(found) for found in fleet.starts().values()} == {1}


def test_a_task_that_waits_is_asked_about_again(new_fleet: NewFleet) -> None:
    fleet = new_fleet(spec())
    say(fleet, "a", "wait")
    with fleet.client() as client:
        started(fleet, client, "a").kill()
        fleet.start("scanner")
        first = fleet.wait_entry("asked", "a")
        say(fleet, "a", "complete")
        second = fleet.wait_entry("asked", "a", nth=2)
        gone(client, "a")
    assert second.at_ms - first.at_ms >= WAIT_SECONDS * 1000 - 100
    assert (first.token, first.attempt) == (second.token, second.attempt)


def frozen_while_asking(process: Process, redis: Any) -> bool:  # noqa: ANN401  a typed client answers untyped
    """Freeze a process; let it go on unless it holds locks now, and is asking therefore."""
    process.pause()
    if redis.keys("*recovery_lock*"):
        return True
    process.resume()
    return False


@pytest.mark.parametrize("other", ["scanner", pytest.param("reaper", marks=pytest.mark.full)])
def test_when_a_reaper_is_killed_while_it_asks_somebody_else_asks_in_its_place(
    new_fleet: NewFleet, other: Role
) -> None:
    """Its locks run out; until then nobody asks."""
    fleet = new_fleet(spec(timeoutSeconds=2))
    ids = [f"t{n}" for n in range(TASKS)]
    for each in ids:
        say(fleet, each, "hang")
    with fleet.client() as client, fleet.server.client() as redis:
        started(fleet, client, *ids).kill()
        reaper = fleet.start("reaper")
        until(lambda: frozen_while_asking(reaper, redis), "it asks")
        assert all(redis.pttl(name) <= 12_000 for name in redis.keys("*recovery_lock*")), (
            "time limit, an answer of Redis, and margin"
        )
        reaper.kill()
        for each in ids:
            say(fleet, each, "complete")
        fleet.start(other)
        for each in ids:
            gone(client, each)
        stats = fleet.stats(redis)
    assert stats["completed"] + stats["waited"] >= TASKS
    assert stats["completed"] == TASKS
    assert {len(found) for found in fleet.starts().values()} == {1}


def test_a_reaper_that_was_frozen_while_it_asked_comes_too_late(new_fleet: NewFleet) -> None:
    fleet = new_fleet(spec(timeoutSeconds=2, onFailure="Requeue"))
    ids = [f"t{n}" for n in range(5)]
    for each in ids:
        say(fleet, each, "hang")
    with fleet.client() as client, fleet.server.client() as redis:
        started(fleet, client, *ids).kill()
        reaper = fleet.start("reaper")
        until(lambda: all(asked(fleet, each) for each in ids), "it asks")
        reaper.pause()
        for each in ids:
            say(fleet, each, "complete")
        recovered = fleet.stats(redis)["reclaimed"]  # none, unless it was too quick for us
        fleet.start("scanner")
        until(lambda: redis.hlen(fleet.keys.tasks) == recovered, "others have asked")
        settled = fleet.stats(redis)
        reaper.resume()
        until(lambda: len(said(reaper, "not_recovered")) >= 5 - recovered, "it is told")
        assert fleet.stats(redis) == settled
    assert recovered or settled["completed"] == 5


def test_a_task_that_waits_for_its_verdict_keeps_nobody_busy(new_fleet: NewFleet) -> None:
    """Neither the scanner nor the reaper asks Redis again and again; and what falls due is run meanwhile."""
    fleet = new_fleet(spec())
    say(fleet, "stuck", "hang")
    with fleet.client() as client, fleet.server.client() as redis:
        started(fleet, client, "stuck").kill()
        fleet.start_all("scanner", "reaper", "worker")
        fleet.wait_entry("asked", "stuck")
        before, at = scripts_run(redis), time.monotonic()
        for n in range(4):
            client.schedule(None, delay_ms=500, task_id=f"other{n}")
            fleet.wait_entry("end", f"other{n}")
        rate = (scripts_run(redis) - before) / (time.monotonic() - at)
        assert len(asked(fleet, "stuck")) == 1
    assert rate < 100, "a busy loop runs thousands a second"


def scripts_run(redis: Any) -> int:  # noqa: ANN401
    """How many since the server began."""
    found = redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})
    return int(found["calls"])


@pytest.mark.parametrize("role", ["scanner", "reaper"])
def test_a_check_that_is_not_there_is_told_before_anything_starts(new_fleet: NewFleet, role: Role) -> None:
    fleet = new_fleet(spec("books:stat"))
    process = fleet.start(role, ready=False)
    assert process.wait() == 3
    assert process.lines == [
        'spec.recovery.check.python.callable: "books:stat" has no attribute "stat", did you mean "state"?'
    ]


def test_a_failed_check_is_logged_with_what_it_said_and_what_was_done(new_fleet: NewFleet) -> None:
    fleet = new_fleet(spec(onFailure="Bury"))
    say(fleet, "a", "perhaps")
    with fleet.client() as client:
        worker = started(fleet, client, "a")
        [run] = fleet.starts()["a"]
        worker.kill()
        reaper = fleet.start("reaper")
        told = wait_said(reaper, "recovered")
    why = "the check failed: expected one of requeue, complete, bury, wait as the verdict, got 'perhaps'"
    assert (told["task_id"], told["token"], told["cause"]) == ("a", run.token, "failed")
    assert (told["verdict"], told["outcome"], told["reason"]) == ("bury", "buried", why)


def ledgered(new_fleet: NewFleet, tmp_path: Path) -> tuple[Fleet, Path]:
    """A fleet under the guard sqlUnique, whose handler takes part in its transaction, and its database."""
    file, secrets = tmp_path / "bank.sqlite", tmp_path / "secrets" / "bank"
    secrets.mkdir(parents=True)
    (secrets / "url").write_text(f"sqlite:///{file}")
    asking = spec() | {
        "handler": {"python": {"callable": "books:transfer"}},
        "guard": {"sqlUnique": {"databaseSecretRef": {"name": "bank"}, "retentionSeconds": DAY_SECONDS}},
    }
    asking["recovery"]["check"] = {"guard": {}, "retryAfterSeconds": 1}
    fleet: Fleet = new_fleet(asking, environment={"DELAYQ_SECRETS_DIR": str(secrets.parent)})
    init = delayq("guard", "init", "--config", str(fleet.config), env=fleet.environment)
    assert init.wait() == 0, init.output
    sql(file, "CREATE TABLE transfers (id TEXT)")
    return fleet, file


def sql(file: Path, statement: str, *values: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file, timeout=30)) as database, database:
        return database.execute(statement, values).fetchall()


@pytest.mark.parametrize("role", ["scanner", "reaper"])
def test_the_guards_ledger_tells_a_task_that_took_effect_from_one_that_did_not(
    new_fleet: NewFleet, tmp_path: Path, role: Role
) -> None:
    """One worker dies before it commits, the other after, before Redis could be told."""
    fleet, file = ledgered(new_fleet, tmp_path)
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
        fleet.start(role)
        gone(client, "after")
        (fleet.ledger_dir / "before.enough").touch()
        fleet.start("worker")
        gone(client, "before")
        stats = fleet.stats(redis)
    assert {name: len(runs) for name, runs in fleet.starts().items()} == {"before": 2, "after": 1}
    assert sql(file, "SELECT id FROM transfers ORDER BY id") == [("after",), ("before",)]
    assert (stats["completed"], stats["reclaimed"], stats["acked"]) == (1, 1, 1)


def test_the_reaper_has_the_guard_forget_what_it_has_kept_for_long_enough(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    """Also after the database was away, which costs nothing but time."""
    fleet, file = ledgered(new_fleet, tmp_path)
    sql(file, "ALTER TABLE delayq_processed RENAME TO away")
    reaper = fleet.start("reaper")
    wait_said(reaper, "guard_prune_failed")
    sql(file, "ALTER TABLE away RENAME TO delayq_processed")
    for name, age in (("old", "-2 days"), ("young", "0 days")):
        sql(file, ROW, fleet.queue, name, age, age)
    assert wait_said(reaper, "guard_pruned")["rows"] == 1
    assert sql(file, "SELECT task_id FROM delayq_processed") == [("young",)]
    assert reaper.alive


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
        gone(client, "a")
        told = run.wait_line('"event": "recovered"')
        home.note(run)
    home.wait_gone()
    assert '"outcome": "completed"' in told
    assert (home.dir / "asked").read_text() == "a"

"""Handlers that hang, swallow, raise, fork, lose their lease, or cannot read their task: its fate is as documented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.results import State
from redis import Redis

from tests.process.fleet import fleets, said, samples, until, wait_said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq import SyncClient
    from delayq.protocol.results import TaskView

    from tests.process.fleet import Fleet, NewFleet

DELIVERY: dict[str, Any] = {
    "leaseDurationSeconds": 2,
    "maxAttempts": 2,
    "handlerTimeoutSeconds": 1,
    "backoff": {"delaysSeconds": [0]},
}
SPEC: dict[str, Any] = {"worker": {"concurrency": 10}, "delivery": DELIVERY}
HANG_SECONDS = 60
BASE_ERRORS = [
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "CancelledError",
    "BaseException",
    "Unknown",
]


@pytest.fixture(scope="module")
def fleet(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker and one scanner for all tests that do not hurt them; each test has tasks of its own."""
    with fleets(tmp_path_factory.mktemp("faults"), flavour, "faults") as new_fleet:
        fleet = new_fleet(SPEC)
        fleet.start_all("worker", "scanner")
        yield fleet


@pytest.fixture
def client(fleet: Fleet) -> Iterator[SyncClient]:
    with fleet.client() as client:
        yield client


def letter(client: SyncClient, task_id: str) -> TaskView:
    """Wait until a task is a dead letter."""
    until(lambda: (found := client.get(task_id)) and found.state is State.DEAD, f"{task_id} is dead")
    view = client.get(task_id)
    assert view is not None
    return view


def gone(client: SyncClient, *ids: str) -> None:
    for task_id in ids:
        until(lambda id_=task_id: client.get(id_) is None, f"{task_id} is done")  # type: ignore[misc]


def events(fleet: Fleet, task_id: str) -> list[str]:
    return [entry.event for entry in fleet.ledger() if entry.id == task_id]


def test_a_handler_that_runs_too_long_is_cancelled_and_has_failed(fleet: Fleet, client: SyncClient) -> None:
    """Also where it swallows its cancellation."""
    for do in ("sleep", "swallow"):
        client.schedule({"do": do, "seconds": HANG_SECONDS}, delay_ms=0, task_id=f"long-{do}")
    for do, heard in (("sleep", "cancelled"), ("swallow", "swallowed")):
        failed = letter(client, f"long-{do}").failed
        assert (failed.failures, failed.crashes, failed.reason) == (2, 0, "attempts")
        assert "task ran longer than handlerTimeoutSeconds (1)" in failed.error
        assert events(fleet, f"long-{do}").count(heard) == 2
    assert samples(fleet.processes[0])["delayq_worker_handler_timeouts"][0][1] == 4


def test_a_handler_deaf_to_cancellation_has_failed_and_keeps_its_slot_alone(new_fleet: NewFleet) -> None:
    """It gets six seconds to clean up; its late end settles nothing, and healthy tasks run all the while.

    Beside it, a handler stops the event loop, and no worker.
    """
    fleet = new_fleet(SPEC | {"worker": {"concurrency": 2}, "delivery": DELIVERY | {"maxAttempts": 1}})
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule({"do": "ignore", "seconds": 15}, delay_ms=0, task_id="deaf")
        failed = letter(client, "deaf").failed
        client.schedule({"do": "stop_loop"}, delay_ms=0, task_id="stops")
        wait_said(worker, "event_loop_interrupted")
        gone(client, "stops")
        client.schedule_many(NewTask(None, delay_ms=0, task_id=f"by-{n}") for n in range(20))
        gone(client, *(f"by-{n}" for n in range(20)))
        fleet.wait_entry("end", "deaf")
        assert client.counts().dead == 1
        fleet.wait_ready(worker)
    assert (failed.failures, failed.crashes, failed.reason) == (1, 0, "attempts")
    assert len(said(worker, "cancellation_ignored")) == 1
    assert said(worker, "claims_stopped_for_suspects") == said(worker, "lease_lost") == []


def test_all_that_a_coroutine_raises_is_that_tasks_failure_alone(new_fleet: NewFleet) -> None:
    """With a single slot: were it lost with the exception, no further task could run."""
    fleet = new_fleet(SPEC | {"worker": {"concurrency": 1}})
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule_many(
            NewTask({"do": "throw", "error": error}, delay_ms=0, task_id=error) for error in BASE_ERRORS
        )
        gone(client, *BASE_ERRORS)
    attempts = [[run.attempt for run in fleet.starts()[error]] for error in BASE_ERRORS]
    assert attempts == [[1, 2]] * len(BASE_ERRORS)
    for error in BASE_ERRORS:
        failure = worker.wait_line(rf'"event": "handler_failed".*"task_id": "{error}"')
        assert ("cancelled itself" if error == "CancelledError" else error) in failure


def test_a_plain_function_that_raises_forks_or_runs_too_long_has_failed_alone(new_fleet: NewFleet) -> None:
    """A child that it forks ends with it."""
    fleet = new_fleet(SPEC | {"handler": {"python": {"callable": "recorder:handle_sync"}}})
    fleet.start_all("worker", "scanner")
    errors = ["SystemExit", "KeyboardInterrupt", "BaseException", "ValueError"]
    with fleet.client() as client:
        client.schedule_many(NewTask({"error": error}, delay_ms=0, task_id=error) for error in errors)
        client.schedule({"seconds": 2.5}, delay_ms=0, task_id="long")
        for task_id, reported in [*((error, error) for error in errors), ("long", "handlerTimeoutSeconds")]:
            failed = letter(client, task_id).failed
            assert (failed.failures, failed.crashes) == (2, 0)
            assert reported in failed.error
        client.schedule({"fork": True}, delay_ms=0, task_id="fork")
        gone(client, "fork")
    assert events(fleet, "fork") == ["start", "child", "exited-0", "end"]


def test_a_worker_that_was_frozen_past_its_lease_cannot_settle(new_fleet: NewFleet) -> None:
    """Whether the task has been done meanwhile, or still runs elsewhere."""
    fleet = new_fleet({"delivery": DELIVERY | {"handlerTimeoutSeconds": 300}})
    first = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        for task_id, seconds in (("short", 1.5), ("long", HANG_SECONDS)):
            client.schedule({"do": "sleep", "seconds": seconds}, delay_ms=0, task_id=task_id)
        old = {task_id: fleet.wait_entry("start", task_id) for task_id in ("short", "long")}
        first.pause()
        second = fleet.start_all("worker", "scanner")[0]
        new = {task_id: fleet.wait_entry("start", task_id, nth=2) for task_id in ("short", "long")}
        gone(client, "short")
        first.resume()
        until(lambda: len(said(first, "lease_lost")) == 2, "both leases are lost")
        assert fleet.wait_entry("cancelled", "long").token == old["long"].token
        assert redis.hkeys(fleet.keys.tasks) == ["long"]
        assert fleet.stats(redis)["acked"] == 1
    for task_id, run in new.items():
        assert (run.pid, run.attempt) == (second.pid, 2)
        assert run.token > old[task_id].token
    assert {each["task_id"] for each in said(first, "lease_lost")} == set(new)
    assert said(second, "lease_lost") == []


def test_what_a_handler_asks_for_becomes_of_its_task(fleet: Fleet, client: SyncClient) -> None:
    """A retry after some time, retries that are not charged, an end; and beside them one that blocks the event loop."""
    payloads: dict[str, dict[str, Any]] = {
        "later": {"do": "retry", "delay_ms": 700},
        "free": {"do": "retry", "delay_ms": 10, "charge": False},
        "dead": {"do": "bury"},
        "block": {"do": "block", "seconds": 0.8},  # less than the lease
    }
    client.schedule_many(NewTask(each, delay_ms=0, task_id=name) for name, each in payloads.items())
    first = fleet.wait_entry("start", "later")
    (fleet.ledger_dir / "later.enough").touch()
    second = fleet.wait_entry("start", "later", nth=2)
    assert second.at_ms >= second.due_ms >= first.at_ms + 700
    assert second.attempt == 2
    assert fleet.wait_entry("start", "free", nth=6).attempt == 1
    (fleet.ledger_dir / "free.enough").touch()
    failed = letter(client, "dead").failed
    assert (failed.failures, failed.reason, failed.error) == (1, "buried", "never to succeed")
    gone(client, "later", "free", "block")
    assert [len(fleet.starts()[name]) for name in ("dead", "block")] == [1, 1]


def test_bytes_that_cannot_be_read_become_a_dead_letter_and_are_kept(
    fleet: Fleet, client: SyncClient
) -> None:
    """Those that are no envelope at once; a payload nested deeper than any parser goes after its last attempt."""
    deep = b"\x11" + b"[" * 100_000 + b"]" * 100_000 + bytes(6)
    corrupt = {
        "empty": b"",
        "flags": b"\x1f" + b"unknown flags",
        "headers": b"\x12\xff\xff\xff headers too long",
        "deep-headers": b"\x13\x01\x86\xa0" + b"[" * 100_000 + b"{}" + bytes(6),
    }
    with Redis(port=fleet.server.port) as redis:
        for task_id, envelope in {"deep": deep, **corrupt}.items():
            redis.hset(fleet.keys.tasks, task_id, envelope)
            redis.zadd(fleet.keys.delayed, {task_id: fleet.server.now_ms()})
        failed = letter(client, "deep").failed
        assert (failed.failures, failed.crashes, failed.reason) == (2, 0, "attempts")
        assert "RecursionError" in failed.error
        for task_id, envelope in corrupt.items():
            failed = letter(client, task_id).failed
            assert failed.reason == "buried"
            assert failed.error.startswith("unreadable: ")
            assert redis.hget(fleet.keys.tasks, task_id) == envelope
            assert task_id not in fleet.starts()
        assert redis.hget(fleet.keys.tasks, "deep") == deep


def test_a_child_that_a_coroutine_forks_does_not_become_a_second_worker(
    fleet: Fleet, client: SyncClient
) -> None:
    """It ends where it would get back to the event loop, and none of its neighbours runs twice."""
    codes = {"fork-returns": 0, "fork-awaits": 1}
    ids = [f"beside-{n}" for n in range(20)]
    tasks = [NewTask(None, delay_ms=0, task_id=each) for each in ids]
    forking = [
        NewTask({"do": "fork", "awaits": each == "fork-awaits"}, delay_ms=0, task_id=each) for each in codes
    ]
    client.schedule_many([*tasks[:10], *forking, *tasks[10:]])
    for task_id, code in codes.items():
        fleet.wait_entry(f"exited-{code}", task_id)
        child = fleet.wait_entry("child", task_id).pid
        fleet.processes[0].wait_line(rf'"event": "forked_child_ended", "child": {child}')
    gone(client, *codes, *ids)
    assert [events(fleet, id_) for id_ in ids] == [["start", "end"]] * len(ids)

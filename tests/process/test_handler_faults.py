"""Handlers that hang, swallow, exit, lose their lease, or cannot read their task: its fate is as documented."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.results import State
from redis import Redis

from tests.process.fleet import fleets, said, until, url_of, wait_said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq import SyncClient
    from delayq.protocol.results import TaskView

    from tests.process.fleet import Fleet, NewFleet

SPEC = {
    "worker": {"concurrency": 10},
    "delivery": {
        "leaseDurationSeconds": 2,
        "maxAttempts": 2,
        "handlerTimeoutSeconds": 1,
        "backoff": {"delaysSeconds": [0]},
    },
}
HANG_SECONDS = 60


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


def gone(client: SyncClient, task_id: str) -> None:
    until(lambda: client.get(task_id) is None, f"{task_id} is done")


def events(fleet: Fleet, task_id: str) -> list[str]:
    return [entry.event for entry in fleet.ledger() if entry.id == task_id]


@pytest.mark.parametrize(
    ("do", "heard"), [("sleep", "cancelled"), ("swallow", "swallowed")], ids=["cancelled", "swallowed"]
)
def test_a_handler_that_runs_too_long_is_cancelled_and_has_failed(
    fleet: Fleet, client: SyncClient, do: str, heard: str
) -> None:
    before = metric(fleet, "delayq_worker_handler_timeouts_total")
    client.schedule({"do": do, "seconds": HANG_SECONDS}, delay_ms=0, task_id=f"long-{do}")
    failed = letter(client, f"long-{do}").failed
    assert (failed.failures, failed.crashes, failed.reason) == (2, 0, "attempts")
    assert "task ran longer than handlerTimeoutSeconds (1)" in failed.error
    assert events(fleet, f"long-{do}").count(heard) == 2
    assert metric(fleet, "delayq_worker_handler_timeouts_total") == before + 2


def metric(fleet: Fleet, name: str) -> float:
    text = fleet.processes[0].wait_http(url_of(fleet.processes[0], "metrics")).decode()
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


def test_a_handler_deaf_to_cancellation_has_failed_and_keeps_its_slot_alone(new_fleet: NewFleet) -> None:
    """It gets a few seconds to clean up; its late end settles nothing, and healthy tasks run all the while."""
    fleet = new_fleet(SPEC | {"worker": {"concurrency": 3}})
    worker, _ = fleet.start_all("worker", "scanner")
    with fleet.client() as client:
        client.schedule({"do": "ignore", "seconds": 20}, delay_ms=0, task_id="deaf")
        failed = letter(client, "deaf").failed
        for n in range(20):  # beside two runs that go on
            client.schedule(None, delay_ms=0, task_id=f"by-{n}")
            gone(client, f"by-{n}")
        assert "deaf" not in {entry.id for entry in fleet.ledger() if entry.event == "end"}
        fleet.wait_entry("end", "deaf", nth=2)
        assert client.counts().dead == 1
    assert (failed.failures, failed.crashes, failed.reason) == (2, 0, "attempts")
    assert "task ran longer than handlerTimeoutSeconds (1)" in failed.error
    assert len(said(worker, "cancellation_ignored")) == 2
    assert said(worker, "claims_suspended") == said(worker, "lease_lost") == []


def test_a_command_that_ignores_sigterm_has_failed_and_not_crashed(new_fleet: NewFleet) -> None:
    """Its lease is shorter than the time it is given to end, and lasts until it is killed."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    handler = {"exec": {"command": [sys.executable, "-c", stubborn]}}
    fleet = new_fleet(SPEC | {"handler": handler, "delivery": SPEC["delivery"] | {"maxAttempts": 1}})  # type: ignore[operator]
    fleet.start_all("worker", "scanner")
    with fleet.client() as client:
        client.schedule(None, delay_ms=0, task_id="stubborn")
        failed = letter(client, "stubborn").failed
    assert (failed.failures, failed.crashes, failed.reason) == (1, 0, "attempts")
    assert "handlerTimeoutSeconds" in failed.error


@pytest.mark.parametrize(
    "error",
    ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "BaseException", "Unknown"],
)
def test_whatever_a_coroutine_raises_is_that_tasks_failure_alone(new_fleet: NewFleet, error: str) -> None:
    """With a single slot: were it lost with the exception, the second task could never run."""
    fleet = new_fleet(SPEC | {"worker": {"concurrency": 1}}, appendonly=False)
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule({"do": "throw", "error": error}, delay_ms=0, task_id="thrown")
        assert fleet.wait_entry("start", "thrown", nth=2).attempt == 2
        gone(client, "thrown")
        client.schedule(None, delay_ms=0, task_id="after")
        gone(client, "after")
    assert worker.alive
    wait_said(worker, "handler_failed")  # its output is read by and by
    [failure] = said(worker, "handler_failed")
    assert ("cancelled itself" if error == "CancelledError" else error) in failure["error"]


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "BaseException", "ValueError"])
def test_whatever_a_plain_function_raises_is_that_tasks_failure_alone(sync_fleet: Fleet, error: str) -> None:
    with sync_fleet.client() as client:
        client.schedule({"error": error}, delay_ms=0, task_id=f"sync-{error}")
        failed = letter(client, f"sync-{error}").failed
        client.schedule(None, delay_ms=0, task_id=f"after-{error}")
        gone(client, f"after-{error}")
    assert failed.failures == 2
    assert error in failed.error


def test_a_plain_function_that_runs_too_long_has_failed(sync_fleet: Fleet) -> None:
    with sync_fleet.client() as client:
        client.schedule({"seconds": 2.5}, delay_ms=0, task_id="sync-long")
        failed = letter(client, "sync-long").failed
    assert "handlerTimeoutSeconds" in failed.error


@pytest.fixture(scope="module")
def sync_fleet(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleets(tmp_path_factory.mktemp("sync"), flavour, "sync") as new_fleet:
        fleet = new_fleet(SPEC | {"handler": {"python": {"callable": "recorder:handle_sync"}}})
        fleet.start_all("worker", "scanner")
        yield fleet


@pytest.mark.parametrize("seconds", [1.5, HANG_SECONDS], ids=["done_meanwhile", "still_running"])
def test_a_worker_that_was_frozen_past_its_lease_cannot_settle(new_fleet: NewFleet, seconds: float) -> None:
    delivery = SPEC["delivery"] | {"handlerTimeoutSeconds": 300}  # type: ignore[operator]
    fleet = new_fleet({"delivery": delivery})
    first = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({"do": "sleep", "seconds": seconds}, delay_ms=0, task_id="mine")
        old = fleet.wait_entry("start", "mine")
        first.pause()
        second, _ = fleet.start_all("worker", "scanner")
        new = fleet.wait_entry("start", "mine", nth=2)
        first.resume()
        lost = wait_said(first, "lease_lost")
        if seconds == HANG_SECONDS:
            assert fleet.wait_entry("cancelled", "mine").token == old.token
            assert redis.hlen(fleet.keys.tasks) == 1
        else:
            gone(client, "mine")
            assert fleet.stats(redis)["acked"] == 1
    assert lost["task_id"] == "mine"
    assert (new.pid, new.attempt) == (second.pid, 2)
    assert new.token > old.token
    assert said(second, "lease_lost") == []


def test_a_retry_is_due_when_the_handler_says(fleet: Fleet, client: SyncClient) -> None:
    client.schedule({"do": "retry", "delay_ms": 700}, delay_ms=0, task_id="later")
    first = fleet.wait_entry("start", "later")
    (fleet.ledger_dir / "later.enough").touch()
    second = fleet.wait_entry("start", "later", nth=2)
    assert second.due_ms >= first.at_ms + 700
    assert second.at_ms >= second.due_ms
    assert second.attempt == 2
    gone(client, "later")


def test_a_retry_without_charge_may_happen_any_number_of_times(fleet: Fleet, client: SyncClient) -> None:
    client.schedule({"do": "retry", "delay_ms": 10, "charge": False}, delay_ms=0, task_id="free")
    entry = fleet.wait_entry("start", "free", nth=6)
    (fleet.ledger_dir / "free.enough").touch()
    assert entry.attempt == 1
    gone(client, "free")


def test_a_buried_task_is_a_dead_letter_at_once(fleet: Fleet, client: SyncClient) -> None:
    client.schedule({"do": "bury"}, delay_ms=0, task_id="dead")
    failed = letter(client, "dead").failed
    assert (failed.failures, failed.reason, failed.error) == (1, "buried", "never to succeed")
    assert len(fleet.starts()["dead"]) == 1


def test_an_envelope_from_the_future_is_put_off_and_not_charged(fleet: Fleet, client: SyncClient) -> None:
    """Due again later, for a worker that can read it; its bytes are not changed."""
    envelope = b"\x21" + b"{}" + fleet.server.now_ms().to_bytes(6, "big")
    plant(fleet, "future", envelope)
    said_line = fleet.processes[0].wait_line(r'"event": "envelope_too_new"')
    assert '"future"' in said_line
    until(lambda: (found := client.get("future")) and found.state is State.RETRYING, "it waits again")
    view = client.get("future")
    assert view is not None
    assert (view.failed.failures, view.failed.crashes) == (0, 0)
    assert view.failed.error == "unreadable: envelope version 2, this delayq reads up to 1"
    assert view.at_ms > fleet.server.now_ms() + 10_000
    assert raw(fleet, "future") == envelope
    assert "future" not in fleet.starts()
    client.cancel("future")


def test_a_payload_nested_deeper_than_any_parser_goes_is_a_dead_letter_and_no_crash(
    fleet: Fleet, client: SyncClient
) -> None:
    envelope = b"\x11" + b"[" * 100_000 + b"]" * 100_000 + bytes(6)
    plant(fleet, "deep", envelope)
    failed = letter(client, "deep").failed
    assert (failed.failures, failed.crashes, failed.reason) == (2, 0, "attempts")
    assert "RecursionError" in failed.error
    assert raw(fleet, "deep") == envelope


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"short",
        b"\x1f" + b"flags nobody knows",
        b"\x12\xff\xff\xff headers too long",
        b"\x00" * 20,
        b"\x13\x01\x86\xa0" + b"[" * 100_000 + b"{}" + bytes(6),
    ],
    ids=["empty", "short", "flags", "headers", "zeros", "deep"],
)
def test_bytes_that_are_no_envelope_become_a_dead_letter_and_are_kept(
    fleet: Fleet, client: SyncClient, envelope: bytes
) -> None:
    task_id = f"corrupt-{envelope.hex()[:8]}"
    plant(fleet, task_id, envelope)
    failed = letter(client, task_id).failed
    assert failed.reason == "buried"
    assert failed.error.startswith("unreadable: ")
    assert raw(fleet, task_id) == envelope
    assert task_id not in fleet.starts()


def plant(fleet: Fleet, task_id: str, envelope: bytes) -> None:
    """Put raw bytes where a task would be, due now."""
    with fleet.server.client() as redis:
        redis.hset(fleet.keys.tasks, task_id, envelope)
        redis.zadd(fleet.keys.delayed, {task_id: fleet.server.now_ms()})


def raw(fleet: Fleet, task_id: str) -> Any:  # noqa: ANN401
    with Redis(port=fleet.server.port) as redis:
        return redis.hget(fleet.keys.tasks, task_id)


def test_a_coroutine_that_blocks_its_event_loop_runs_its_task_to_the_end(
    fleet: Fleet, client: SyncClient
) -> None:
    """Shorter than the lease, it does no harm but to the punctuality of its neighbours."""
    client.schedule_many(
        [
            NewTask({"do": "block", "seconds": 0.8}, delay_ms=0, task_id="block"),
            NewTask(None, delay_ms=0, task_id="by"),
        ]
    )
    gone(client, "block")
    gone(client, "by")
    assert len(fleet.starts()["block"]) == 1


@pytest.mark.parametrize(("awaits", "code"), [(False, 0), (True, 1)], ids=["returns", "awaits"])
def test_a_child_that_a_coroutine_forks_does_not_become_a_second_worker(
    fleet: Fleet, client: SyncClient, code: int, *, awaits: bool
) -> None:
    """It ends where it would get back to the event loop, and none of its neighbours runs twice."""
    ids = [f"beside-fork-{code}-{n}" for n in range(20)]
    forking = NewTask({"do": "fork", "awaits": awaits}, delay_ms=0, task_id=f"fork-{code}")
    client.schedule_many([*(NewTask(None, delay_ms=0, task_id=id_) for id_ in ids[:10]), forking])
    client.schedule_many(NewTask(None, delay_ms=0, task_id=id_) for id_ in ids[10:])
    fleet.wait_entry(f"exited-{code}", f"fork-{code}")
    gone(client, f"fork-{code}")
    for id_ in ids:
        gone(client, id_)
        assert events(fleet, id_) == ["start", "end"]
    child = fleet.wait_entry("child", f"fork-{code}").pid
    fleet.processes[0].wait_line(rf'"event": "forked_child_ended", "child": {child}')


def test_a_child_that_a_plain_function_forks_ends_with_the_function(sync_fleet: Fleet) -> None:
    with sync_fleet.client() as client:
        client.schedule({"fork": True}, delay_ms=0, task_id="sync-fork")
        sync_fleet.wait_entry("exited-0", "sync-fork")
        gone(client, "sync-fork")
    assert events(sync_fleet, "sync-fork") == ["start", "child", "exited-0", "end"]

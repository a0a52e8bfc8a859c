"""Tasks in flight that are cancelled while their worker dies, hangs or stops: none runs again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from redis import Redis

from tests.process.fleet import fleets, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import NewFleet

SPEC: dict[str, Any] = {
    "worker": {"concurrency": 10, "drainTimeoutSeconds": 30},
    "delivery": {"leaseDurationSeconds": 2, "handlerTimeoutSeconds": 60},
}
TASKS = 4


@pytest.fixture
def new_fleet(flavour: str, tmp_path: Path) -> Iterator[NewFleet]:
    with fleets(tmp_path, flavour, "cancels") as make:
        yield make


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGSTOP, marks=pytest.mark.full)]
)
def test_a_cancelled_task_never_runs_again_whatever_becomes_of_its_worker(
    new_fleet: NewFleet, sent: signal.Signals
) -> None:
    """Another worker is there to run them."""
    fleet = new_fleet(SPEC)
    worker, _ = fleet.start_all("worker", "scanner")
    ids = [f"t{nth}" for nth in range(TASKS)]
    with fleet.client() as client, Redis(port=fleet.server.port, decode_responses=True) as redis:
        client.schedule_many([NewTask({"do": "sleep", "seconds": 30}, task_id=each) for each in ids])
        for each in ids:
            fleet.wait_entry("start", each)
        fleet.start("worker")
        assert {client.cancel(each, running=True) for each in ids} == {"cancelling"}
        worker.send(sent)
        until(lambda: not client.counts().bytes, "all have ended")
        if sent == signal.SIGSTOP:
            worker.send(signal.SIGCONT)
            for each in ids:
                fleet.wait_entry("cancelled", each)
        assert {each: len(entries) for each, entries in fleet.starts().items()} == dict.fromkeys(ids, 1)
        assert not fleet.ended()
        stats = fleet.stats(redis)
        assert (stats["cancelled"], stats["acked"], stats["reclaimed"]) == (TASKS, 0, 0)
        assert not redis.exists(fleet.keys.cancelling)

"""From an older build to this one, and back: processes of both run side by side, die, and no task is lost or early."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.results import State

from tests.process.fleet import check_runs, until
from tests.processes import Gone, delayq
from tests.upgrade.baselines import Baseline, cases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq import SyncClient
    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet, Role
    from tests.processes import Process

SPEC: dict[str, Any] = {
    "worker": {"concurrency": 20, "drainTimeoutSeconds": 2},
    "delivery": {"leaseDurationSeconds": 2, "backoff": {"delaysSeconds": [1]}},
}
ROLES: tuple[Role, ...] = ("worker", "worker", "scanner", "reaper")
HOUR_MS = 3_600_000
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow": {"do": "sleep", "seconds": 0.5},
    "retried": {"do": "fail", "times": 1},
    "buried": {"do": "bury"},
    "held": {"do": "sleep", "seconds": 4},
}
EACH = 20


class Both:
    """A queue that processes of two builds serve."""

    def __init__(self, fleet: Fleet, old: Path) -> None:
        self.fleet = fleet
        self.environments = {"old": {"PYTHONPATH": str(old / "worker")}, "new": {}}
        self.payloads: dict[str, dict[str, Any]] = {}
        self.killed: set[int] = set()

    def start(self, build: str) -> list[Process]:
        """All that a queue needs; the two workers first."""
        with self.of(build):
            return self.fleet.start_all(*ROLES)

    @contextmanager
    def of(self, build: str) -> Iterator[dict[str, str]]:
        self.fleet.environment = self.environments[build]
        yield self.fleet.environment
        self.fleet.environment = {}

    def schedule(self, build: str, batch: str) -> None:
        """Some of each kind, due within three seconds, and one that is due in an hour; by that build's client."""
        tasks = {f"{batch}-{kind}-{n}": payload for kind, payload in KINDS.items() for n in range(EACH)}
        lines = [
            {"id": task, "payload": payload, "delay_ms": 150 * (n % EACH)}
            for n, (task, payload) in enumerate(tasks.items())
        ]
        lines.append({"id": f"{batch}-later", "payload": {}, "delay_ms": HOUR_MS})
        file = self.fleet.dir / f"{batch}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        where = ("--redis", self.fleet.server.url)
        with self.of(build) as env:
            process = delayq("schedule", str(self.fleet.config), *where, "--many", str(file), env=env)
        assert process.wait() == 0, process.output
        self.payloads |= tasks

    def kill(self, process: Process) -> None:
        """Kill a worker that runs two tasks which take long; there are more of them until it has two."""
        more = [task for task in self.payloads if task.startswith("more-")]

        def running(client: SyncClient) -> bool:
            entries = [each for each in self.fleet.ledger() if "-held-" in each.id]
            mine = [each for each in entries if each.pid == process.pid]
            if len({e.id for e in mine} - {e.id for e in mine if e.event != "start"}) >= 2:
                return True
            if not more or more[-1] in {each.id for each in entries}:
                more.append(f"more-held-{len(more)}")
                client.schedule(KINDS["held"], task_id=more[-1], delay_ms=0)
            return False

        with self.fleet.client() as client:
            until(lambda: running(client), "a worker runs tasks that take long")
        self.payloads |= dict.fromkeys(more, KINDS["held"])
        process.kill()
        self.killed.add(process.pid)


def stop(processes: list[Process]) -> None:
    """As a rolling update does."""
    for process in processes:
        if process.alive:
            process.send(signal.SIGTERM)
    for process in processes:
        assert process.wait() in (0, -signal.SIGKILL), process.output


@pytest.fixture(params=cases())
def both(request: pytest.FixtureRequest, new_fleet: NewFleet, tmp_path: Path) -> Both:
    baseline: Baseline = request.param
    return Both(new_fleet(SPEC), baseline.unpack(tmp_path / "old", "worker"))


@pytest.fixture
def redis(both: Both) -> Iterator[Redis]:
    with both.fleet.server.client() as redis:
        yield redis


@pytest.mark.slow
def test_an_upgrade_and_a_rollback_under_kills_lose_nothing(both: Both, redis: Redis) -> None:
    """Old, both, new, back to the old and to the new again, with workers that are killed on the way."""
    fleet = both.fleet
    old = both.start("old")
    both.schedule("old", "a")
    both.kill(old[0])
    new = both.start("new")
    both.schedule("new", "b")
    both.kill(new[0])
    stop(old)
    account(both, redis)
    with both.of("new"):
        new.append(fleet.start("worker"))
    both.schedule("new", "c")
    both.kill(new[1])
    both.kill(new[-1])
    until(lambda: redis.zcard(fleet.keys.suspect), "tasks wait apart")
    stop(new)
    assert redis.zcard(fleet.keys.suspect)
    back = both.start("old")
    both.schedule("old", "d")
    both.kill(back[0])
    account(both, redis)
    again = both.start("new")
    stop(back)
    both.schedule("new", "e")
    account(both, redis)
    until(lambda: not redis.zcard(fleet.keys.suspect), "none waits apart")
    stop(again)
    fleet.snapshot(redis).check()


def account(both: Both, redis: Redis) -> None:
    """Every task so far is done or dead as its payload says; after its end, only what a killed worker had ran again."""
    fleet = both.fleet
    buried = {task for task in both.payloads if "-buried-" in task}
    later = {f"{task[0]}-later" for task in both.payloads if not task.startswith("more-")}

    def settled() -> bool:
        tasks: Any = redis.hkeys(fleet.keys.tasks)
        return set(tasks) == buried | later

    try:
        until(settled, "all is done but what is due in an hour", timeout_s=60)
    except Gone:
        pytest.fail(f"not settled: {fleet.snapshot(redis)}")
    check_runs(fleet.starts())
    assert fleet.starts().keys() == both.payloads.keys()
    ends = defaultdict(list)
    for entry in fleet.ledger():
        if entry.event == "end":
            ends[entry.id].append(entry)
    assert ends.keys() == both.payloads.keys() - buried
    assert [each for each in ends.values() if {entry.pid for entry in each[:-1]} - both.killed] == []
    with fleet.client() as client:
        assert {view.state for task in later if (view := client.get(task))} == {State.SCHEDULED}

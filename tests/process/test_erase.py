"""delayq erase: ends when nothing is left of a queue, and says so when it cannot get there."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask, SyncClient
from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import Commands
from delayq.protocol.shard_map import ShardMap

from tests.process.fleet import said, until
from tests.processes import DELAYQ, delayq
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet

SHARDS = 4


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    return new_fleet({"shards": SHARDS})


def erase(config: Path, url: str, *args: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the events and what else was said."""
    argv = [DELAYQ, "erase", "--config", str(config), "--redis", url, "--port", "0", *args]
    done = subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    lines = done.stderr.splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return done.returncode, events, "\n".join(line for line in lines if not line.startswith("{"))


def left(redis: Any) -> list[str]:  # noqa: ANN401  redis-py's answers may be awaitable, by their types
    """All keys, but those that say until they expire that a queue was erased."""
    return [key for key in redis.keys("*") if redis.ttl(key) == -1]


def test_nothing_is_left_and_the_events_say_what_there_was(fleet: Fleet) -> None:
    with fleet.client() as client:
        client.schedule_many(NewTask(n, delay_ms=3_600_000) for n in range(100))
    with SyncClient(fleet.server.url, queue=f"{fleet.queue}-2") as other:
        other.schedule("kept", delay_ms=0)
    code, events, rest = erase(fleet.config, fleet.server.url)
    progress = [each for each in events if each["event"] == "shard_erased"]
    assert (code, rest) == (0, "")
    assert [(each["shard"], each["shards"]) for each in progress] == [
        (n, SHARDS) for n in reversed(range(SHARDS))
    ]  # the first one last: it tells how many there are
    assert sum(each["tasks"] for each in progress) == 100
    assert [each["tasks"] for each in events if each["event"] == "erased"] == [100]
    with fleet.server.client() as redis:
        assert {key.split(":")[1] for key in left(redis)} == {f"{{{fleet.queue}-2"}


def test_a_dry_run_counts_the_tasks_and_deletes_none(fleet: Fleet) -> None:
    with fleet.client() as client:
        client.schedule("kept", delay_ms=0)
        client.schedule("kept, too", delay_ms=3_600_000)
        result = run("erase", "--config", str(fleet.config), "--redis", fleet.server.url, "--dry-run")
        assert result.stdout == f"would erase queue {fleet.queue} with 2 tasks; nothing changed\n"
        assert client.counts().waiting == 2


def test_an_empty_queue_is_erased_in_one_look(fleet: Fleet) -> None:
    code, events, _ = erase(fleet.config, fleet.server.url, "--patience", "0s")
    assert code == 0
    assert [each["event"] for each in events] == [
        "started",
        *["shard_erased"] * SHARDS,
        "erased",
        "stopped",
    ]


def test_an_unreachable_redis_is_exit_code_4_after_some_patience(fleet: Fleet) -> None:
    code, events, rest = erase(fleet.config, "redis://127.0.0.1:1", "--patience", "1s")
    assert code == 4
    assert rest == "error: cannot reach Redis at 127.0.0.1:1 (connection refused)"
    assert {each["event"] for each in events} == {"started", "redis_unavailable", "stopped"}


def test_a_redis_that_comes_back_is_waited_for(fleet: Fleet) -> None:
    fleet.server.kill()
    process = delayq("erase", "--config", str(fleet.config), "--redis", fleet.server.url, "--port", "0")
    fleet.processes.append(process)
    until(lambda: said(process, "redis_unavailable"), "it noticed")
    fleet.server.restart()
    assert process.wait() == 0


def test_a_queue_in_use_is_told(fleet: Fleet) -> None:
    stop = threading.Event()

    def go_on_scheduling() -> None:
        with fleet.client() as client:
            while not stop.is_set():
                client.schedule_many(NewTask(n, delay_ms=0) for n in range(50))

    with ThreadPoolExecutor() as pool:
        going_on = pool.submit(go_on_scheduling)
        code, _, rest = erase(fleet.config, fleet.server.url, "--patience", "1s")
        stop.set()
    going_on.result()
    assert (code, rest) == (
        1,
        f"error: queue {fleet.queue} is in use: what is erased is there again at once",
    )
    assert erase(fleet.config, fleet.server.url)[0] == 0


def test_a_document_that_is_wrong_is_exit_code_3(fleet: Fleet) -> None:
    wrong = fleet.dir / "wrong.yaml"
    wrong.write_text("kind: DelayQueue")
    assert erase(wrong, fleet.server.url)[0] == 3


def test_a_refusal_is_not_tried_again(fleet: Fleet) -> None:
    with fleet.server.client() as redis:
        redis.execute_command("ACL", "SETUSER", "delayq", "-unlink")
        code, _, rest = erase(fleet.config, fleet.server.url)
        redis.execute_command("ACL", "SETUSER", "delayq", "+unlink")
    assert code == 1
    assert "refused erase" in rest


def test_whoever_stops_it_early_does_not_get_a_zero(fleet: Fleet) -> None:
    fleet.server.kill()
    process = delayq("erase", "--config", str(fleet.config), "--redis", fleet.server.url, "--port", "0")
    fleet.processes.append(process)
    until(lambda: said(process, "redis_unavailable"), "it runs")
    process.send(signal.SIGTERM)
    assert process.wait() == 1
    assert "stopped before everything was erased" in process.output


def test_shards_that_were_dropped_go_too(fleet: Fleet) -> None:
    """All they hold is a shard map, and maybe what a fail-over brought back."""
    commands = Commands(fleet.queue, shards=1)
    with (
        fleet.server.client() as redis,
        closing(SyncConnection(Address.from_url(fleet.server.url))) as connection,
    ):
        shard_map = ShardMap(9, 1, 1, 1, 7)
        connection.run([commands.sync_shard_map(shard, shard_map) for shard in range(7)])
        redis.hset(commands.keys(6).tasks, "stray", "x")
        code, events, _ = erase(fleet.config, fleet.server.url)
        assert code == 0
        assert left(redis) == []
    assert [each["tasks"] for each in events if each["event"] == "erased"] == [1]

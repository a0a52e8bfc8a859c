"""delayq erase: ends when nothing is left of a queue, and says so when it cannot get there."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import NewTask, SyncClient
from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import Commands
from delayq.protocol.shard_map import ShardMap

from tests.process.fleet import samples, until, wait_said
from tests.processes import Process, delayq
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet

SHARDS, DROPPED = 4, 3
HOUR_MS = 3_600_000


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    return new_fleet({"shards": SHARDS})


def begin(fleet: Fleet, *args: str) -> Process:
    where = (str(fleet.config), "--redis", fleet.server.url)
    process = delayq("erase", *where, "--port", "0", "--yes", *args)
    fleet.processes.append(process)
    return process


def erase(fleet: Fleet, *args: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the events and what else was printed."""
    process = begin(fleet, *args)
    code = process.wait()
    events = [json.loads(line) for line in process.lines if line.startswith("{")]
    return code, events, "\n".join(line for line in process.lines if not line.startswith("{"))


def test_nothing_is_left_of_any_shard_and_the_events_tell_what_there_was(fleet: Fleet) -> None:
    """Dropped shards go, too: they hold a shard map, and maybe what a fail-over brought back."""
    commands, shards = Commands(fleet.queue, shards=1), SHARDS + DROPPED
    with fleet.client() as client, SyncClient(fleet.server.url, queue=f"{fleet.queue}-2") as other:
        client.schedule_many(NewTask(n, delay_ms=HOUR_MS) for n in range(100))
        other.schedule("kept", delay_ms=0)
        dry = run("erase", str(fleet.config), "--redis", fleet.server.url, "--dry-run")
        assert dry.stdout == f"would erase queue {fleet.queue} with 100 tasks; nothing changed\n"
        assert client.counts().waiting == 100
    with closing(SyncConnection(Address.from_url(fleet.server.url))) as connection:
        [found] = connection.run([commands.sync_shard_map(0)])
        assert found.shard_map is not None
        wider = ShardMap(found.shard_map.epoch + 1, SHARDS, SHARDS, SHARDS, shards)
        connection.run([commands.sync_shard_map(shard, wider) for shard in range(shards)])
    with fleet.server.client() as redis:
        redis.hset(commands.keys(shards - 1).tasks, "stray", "x")
        redis.execute_command("ACL", "SETUSER", "delayq", "-unlink")
        code, _, rest = erase(fleet)  # a refusal is not tried again
        assert code == 1
        assert "refused erase" in rest
        redis.execute_command("ACL", "SETUSER", "delayq", "+unlink")
        code, events, rest = erase(fleet)
        assert (code, rest) == (0, "")
        progress = [(each["shard"], each["shards"]) for each in events if each["event"] == "shard_erased"]
        # The first shard is the last to go: it says how many there are.
        assert progress[-shards:] == [(n, shards) for n in reversed(range(shards))]
        assert [each["tasks"] for each in events if each["event"] == "erased"] == [101]
        lasting = [
            key for key in redis.keys("*") if redis.ttl(key) == -1
        ]  # the others say that it was erased
        assert {key.split(":")[1] for key in lasting} == {f"{{{fleet.queue}-2"}
    assert erase(fleet, "--patience", "0s")[0] == 0


def test_redis_is_waited_for_and_an_early_end_is_no_success(fleet: Fleet) -> None:
    fleet.server.kill()
    hasty, stopped, patient = begin(fleet, "--patience", "1s"), begin(fleet), begin(fleet)
    for process in (stopped, patient):
        wait_said(process, "redis_unavailable")
    causes = [labels["cause"] for labels, value in samples(patient)["delayq_redis_down"] if value]
    assert causes == ["refused"], "the operator reports it before the process gives up"
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 1
    assert "stopped before everything was erased" in stopped.output
    assert hasty.wait() == 4
    refused = f"error: cannot reach Redis at 127.0.0.1:{fleet.server.port} (connection refused)"
    assert [line for line in hasty.lines if not line.startswith("{")] == [refused]
    fleet.server.restart()
    assert patient.wait() == 0


def test_a_queue_in_use_is_reported(fleet: Fleet) -> None:
    stop = threading.Event()

    def go_on_scheduling() -> None:
        with fleet.client() as client:
            while not stop.is_set():
                client.schedule_many(NewTask(n, delay_ms=0) for n in range(50))

    with ThreadPoolExecutor() as pool:
        going_on = pool.submit(go_on_scheduling)
        code, _, rest = erase(fleet, "--patience", "1s")
        stop.set()
    going_on.result()
    expected = f"error: queue {fleet.queue} is in use: clients create keys as fast as they are erased"
    assert (code, rest) == (1, expected)


OURS, THEIRS = (f"0b6b0b9e-0000-4000-8000-00000000000{digit}" for digit in "ab")


def write(fleet: Fleet, uid: str | None) -> None:
    """Have the next process be one of this DelayQueue."""
    document = yaml.safe_load(fleet.config.read_text())
    document["metadata"] = {
        "name": document["metadata"]["name"],
        **({"uid": uid, "generation": 1} if uid else {}),
    }
    fleet.config.write_text(yaml.safe_dump(document))


def conflicts(scanner: Process) -> set[str]:
    found = samples(scanner).get("delayq_conflicting_delayqueues", ())
    return {labels["uid"] for labels, value in found if value == 1}


def test_scanners_of_two_delayqueues_report_each_other_and_neither_is_erased_alone(fleet: Fleet) -> None:
    """In every shard. A scanner without a DelayQueue is no conflict, and sees that there are some."""
    started = []
    for uid in (None, THEIRS, OURS):
        write(fleet, uid)
        started.append(fleet.start("scanner"))
    plain, theirs, ours = started
    seen = ((plain, {OURS, THEIRS}), (ours, {THEIRS}), (theirs, {OURS}))
    for scanner, others in seen:
        until(lambda of=scanner, uids=others: conflicts(of) == uids, "it reports the others")  # type: ignore[misc]
    ours.stop()
    with fleet.client() as client:
        client.schedule_many(NewTask(n, delay_ms=HOUR_MS) for n in range(9))
        code, events, message = erase(fleet, "--patience", "100ms")
        assert (code, client.counts().waiting) == (1, 9)
        assert f"scanners of another DelayQueue, of uid {THEIRS}, serve it" in message
        assert "shard_erased" not in {event["event"] for event in events}
        waits = begin(fleet)
        until(lambda: conflicts(waits) == {THEIRS}, "the eraser reports it")
        theirs.stop()
        plain.stop()
        assert waits.wait() == 0
        assert client.counts().waiting == 0

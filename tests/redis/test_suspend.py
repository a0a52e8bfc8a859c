"""What suspends a queue is a field of shard 0's counters. Commands say what suspends it: the document or a command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import Suspension
from delayq.protocol.shard_map import ShardMap
from delayq.resharding.shard_map_sync import ShardMapSync
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop

from tests.redis.commands import answer, document, on
from tests.redis.state import NOW, State, one_server
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.connection import AsyncConnection

    from tests.redis.state import Shard

INCIDENT = "incident 7: the payment service is down"
BY_DOCUMENT = "suspended by the document: spec.suspend is true"
IDLE = "workers claim no tasks"


def test_a_suspension_is_read_with_the_counts_and_with_the_shard_map(shard: Shard) -> None:
    """It needs no task and no process. A second call keeps the time."""
    assert shard.run(shard.commands.suspend(0)) == Suspension(NOW)
    stored = {b"format": b"%d" % FORMAT, b"suspended": b"%d Hold " % NOW}
    assert shard.redis.hgetall(shard.keys.stats) == stored
    shard.clock(NOW + 5)
    drained = Suspension(NOW, drain=True, reason=INCIDENT)
    assert shard.run(shard.commands.suspend(0, drain=True, reason=INCIDENT)) == drained
    assert shard.run(shard.commands.suspend(0, reason=INCIDENT)) == drained, "only resume ends a drain"
    counted = shard.run(shard.commands.counts(0))
    assert (counted.suspension, counted.stats, counted.format) == (drained, {}, FORMAT)
    assert shard.run(shard.commands.sync_shard_map(0)).suspension == drained
    shard.redis.hset(shard.keys.stats, "suspended", "by another program")
    assert shard.run(shard.commands.sync_shard_map(0)).suspension == Suspension(0, reason="program")


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_worker_is_not_ready_before_it_has_read_whether_the_queue_is_suspended(
    shard: Shard, connection: AsyncConnection, *, suspends: bool
) -> None:
    """It claims nothing until then."""
    if suspends:
        shard.run(shard.commands.suspend(0))
    found = list[Suspension | None]()
    loop = Loop(ShardMapSync(shard.commands, connection, note=found.append), ProcessCounters("worker", "q"))
    assert (loop.ready(60), loop.waits_for) == (False, "whether the queue is suspended")
    await loop.service.step()
    assert (loop.ready(60), found) == (True, [Suspension(NOW) if suspends else None])


def test_resuming_leaves_nothing_and_says_what_it_ended(shard: Shard) -> None:
    shard.run(shard.commands.suspend(0, reason=INCIDENT))
    assert shard.run(shard.commands.resume(0)) == Suspension(NOW, reason=INCIDENT)
    assert shard.redis.hgetall(shard.keys.stats) == {b"format": b"%d" % FORMAT}
    assert shard.run(shard.commands.resume(0)) is None
    assert shard.run(shard.commands.sync_shard_map(0)).suspension is None


def test_a_suspension_outlives_another_number_of_shards_and_ends_with_the_queue(shard: Shard) -> None:
    shard.run(shard.commands.suspend(0))
    for steps in (ShardMap(1, 1, 1, 2, 2), ShardMap(NOW + 1, 2, 1, 2, 2), ShardMap(NOW + 2, 2, 2, 2, 2)):
        assert shard.run(shard.commands.sync_shard_map(0, steps)).suspension == Suspension(NOW)
    shard.run(shard.commands.erase(0))
    assert shard.run(shard.commands.sync_shard_map(0)).suspension is None


def test_the_answers_of_the_commands_say_what_still_suspends_the_queue(orders: Shard, tmp_path: Path) -> None:
    """The document, the command, or both. Only the command is ended by `delayq resume`."""
    orders.seed(State(delayed={"late": NOW - 60_000}))
    path = document(tmp_path, one_server(orders).port)
    assert run("suspend", path, "--reason", INCIDENT).stdout.splitlines() == [
        "orders suspended: running tasks finish, workers claim nothing more; scheduled tasks wait.",
        f"To start tasks again: delayq resume {path}",
    ]
    command = f"suspended by delayq suspend now ({INCIDENT})"
    noted = f"note: {command}: {IDLE}; to start tasks: delayq resume {path}\n"
    assert run("status", path).stderr == noted
    assert f"orders: {noted.removeprefix('note: ')}" in run("top", path, "--once", "--interval", "1ms").stdout
    shown = {"suspended_by": ["command"], "suspended_ms": NOW, "suspended_reason": INCIDENT}
    assert shown.items() <= answer(orders, "status", path).items()
    found = doctor(path)
    assert found["suspend"]["message"] == f"{command}: {IDLE}"
    assert found["suspend"]["hint"] == f"delayq resume {path}"
    assert found["tasks"]["message"] == f"1 task due, the oldest for 1m: {command}"

    both = document(tmp_path, one_server(orders).port, "  suspend: true\n")
    assert run("suspend", both).stderr == f"note: also {BY_DOCUMENT}\n"
    assert run("status", both).stderr.splitlines()[0] == f"note: {BY_DOCUMENT}: {IDLE}"
    assert answer(orders, "status", both)["suspended_by"] == ["document", "command"]
    assert doctor(both)["tasks"]["message"].endswith(f": {BY_DOCUMENT} and suspended by delayq suspend now")
    result = run("resume", both)
    assert result.stdout == "orders: delayq suspend no longer applies\n"
    cure = "to start tasks: set spec.suspend to false, and restart the workers"
    assert result.stderr == f"note: still {BY_DOCUMENT}; {cure}\n"
    assert answer(orders, "status", both)["suspended_by"] == ["document"]


def test_the_commands_need_only_a_name_and_a_redis(orders: Shard) -> None:
    assert on(orders, "suspend", "orders", "--drain").stdout.endswith("orders drained: no task runs\n")
    assert "delayq suspend --drain now" in on(orders, "status", "orders").stderr
    assert on(orders, "resume", "orders").stdout == "orders resumed: workers start tasks again\n"
    result = on(orders, "resume", "orders")
    assert result.stdout == "orders was not suspended by delayq suspend: nothing changed\n"
    assert on(orders, "status", "orders").stderr == ""


def test_a_queue_that_was_never_used_is_warned_of(orders: Shard, tmp_path: Path) -> None:
    """Nothing runs under a misspelt name, so `drained` would be believed. A document may come before its processes."""
    port = one_server(orders).port
    for _ in range(2):
        result = on(orders, "suspend", "odrers", "--drain")
        assert result.stdout.endswith("odrers drained: no task runs\n")
        assert result.stderr == (
            f"warning: queue odrers was never used before in Redis at 127.0.0.1:{port}, and no document names it: "
            "is the name right?\n"
        )
    on(orders, "schedule", "orders", "1", "--yes")
    for queue in ("orders", document(tmp_path, port)):
        assert on(orders, "suspend", queue).stderr == ""


@pytest.mark.parametrize("reason", ["two\nlines", "long" * 51])
def test_a_reason_is_one_line(orders: Shard, reason: str) -> None:
    result = on(orders, "suspend", "orders", "--reason", reason)
    assert (result.exit_code, "--reason: expected a line of at most 200 characters" in result.stderr) == (
        2,
        True,
    )
    assert not orders.redis.exists(orders.keys.stats)


def doctor(path: str) -> dict[str, Any]:
    return {each["check"]: each for each in json.loads(run("doctor", path, "-o", "json").stdout)}

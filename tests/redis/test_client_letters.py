"""Both clients: dead letters are listed, grouped, given a new life, purged."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.redis.state import tasks

if TYPE_CHECKING:
    from delayq import SyncClient

    from tests.redis.conftest import Make
    from tests.servers import RedisServer

IDS = [f"t{n}" for n in range(600)]


@pytest.fixture(params=[1, 3])
def dead(request: pytest.FixtureRequest, make: Make, redis_server: RedisServer) -> SyncClient:
    """A client of a queue with 600 dead letters, half of them of one error."""
    client = make(shards=request.param)
    client.schedule_many(tasks(600))
    commands = client._operations.commands
    errors = {f"t{n}": f"order {n} not found" if n % 2 else "ValueError: 'x' at 0xabc" for n in range(600)}
    for keys in commands.shards:
        mine = {task_id: nth for nth, task_id in enumerate(IDS) if commands.shard_of(task_id) == keys.shard}
        with redis_server.on(keys) as redis:
            redis.delete(keys.delayed)
            redis.zadd(keys.dlq, {task_id: 1000 + nth for task_id, nth in mine.items()})
            redis.hset(
                keys.dlq_info, mapping={task_id: f"3 0 attempts {errors[task_id]}" for task_id in mine}
            )
    return client


def test_dead_letters_are_listed_grouped_by_cause_read_and_purged(dead: SyncClient) -> None:
    rows = dead.dlq_list()
    assert [row.id for row in rows] == IDS  # by the time of their death
    assert [row.id for row in dead.dlq_list(["t7", "t5", "gone"])] == ["t5", "t7"]
    groups = dead.dlq_groups()
    assert [(group.count, group.error) for group in groups] == [
        (300, "ValueError: 'x' at 0xabc"),
        (300, "order 599 not found"),
    ]
    assert groups[1].last_ms == 1599
    assert set(groups[1].ids) == set(IDS[1::2])
    views = dead.dlq_get([*IDS, "gone"])
    assert [json.loads(view.body) for view in views] == list(range(600))
    assert views[1].failed.error == "order 1 not found"
    died = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=rows[1].at_ms)
    assert dead.dlq_purge(IDS, before=died) == 1  # those that died later stay
    assert dead.dlq_purge([*IDS[:599], "gone"]) == 598
    assert [row.id for row in dead.dlq_list()] == ["t599"]
    assert dead.get("t1") is None


def test_redriving_spreads_due_times_by_the_rate(dead: SyncClient) -> None:
    for rate in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="rate_per_second: expected a number above 0"):
            dead.dlq_redrive(["t1"], rate_per_second=rate)
    assert dead.dlq_redrive(IDS, rate_per_second=10, dry_run=True) == (600, 60.0)
    assert dead.counts().dead == 600
    assert dead.dlq_redrive([*IDS, "gone"], rate_per_second=10).tasks == 600
    counts = dead.counts(horizons_ms=[30_000])
    assert (counts.dead, counts.waiting) == (0, 600)
    assert counts.due + counts.due_within[30_000] == pytest.approx(300, abs=60)

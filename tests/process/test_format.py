"""Processes that meet a shard of an older or a newer format: they change nothing, say so, and wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.protocol.keys import FORMAT

from tests.process.fleet import samples, status, until
from tests.processes import delayq

if TYPE_CHECKING:
    from redis import Redis

    from tests.process.fleet import NewFleet

OTHERS = (None, FORMAT - 1, FORMAT + 1)  # no field: format 1


def dumped(redis: Redis) -> dict[bytes, object]:
    return {key: (redis.dump(key), redis.pttl(key)) for key in redis.scan_iter()}


@pytest.mark.parametrize("other", OTHERS)
def test_processes_change_nothing_say_so_and_go_on_when_the_keys_are_gone(
    new_fleet: NewFleet, other: int | None
) -> None:
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": 1}})
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({}, delay_ms=0, task_id="due")
        redis.zadd(fleet.keys.processing, {"gone:7": 1})
        redis.delete(fleet.keys.wake, fleet.keys.alarm)
        redis.lpush(fleet.keys.wake, "1")
        redis.lpush(fleet.keys.alarm, "1", "1")
        redis.hset(fleet.keys.stats, "format", FORMAT if other is None else other)
        if other is None:
            redis.hdel(fleet.keys.stats, "format")
        before = dumped(redis)
        where = (str(fleet.config), "--redis", fleet.server.url, "--port", "0")
        erase = delayq("erase", *where, "--yes")
        processes = [fleet.start(role, ready=False) for role in ("worker", "scanner", "reaper")]
        said = f"expected format {FORMAT}, got {other or 1}; nothing was changed"
        for process in processes:
            process.wait_line(rf'{said}.*"(?:times|failures)": [48]\b')
        assert (erase.wait(), said in erase.output) == (1, True)
        assert [process.alive for process in processes] == [True] * 3
        assert [status(process, "readyz") for process in processes] == [503] * 3
        causes = {labels["cause"] for labels, value in samples(processes[1])["delayq_redis_down"] if value}
        assert causes == {"unsupported_format"}
        assert dumped(redis) == before
        redis.hset(fleet.keys.stats, "format", FORMAT)
        until(lambda: client.get("due") is None, "the task is done")

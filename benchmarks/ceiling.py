"""The raw ceiling: what this machine's Redis does when nothing of delayq is in the way, measured in the same run.

`redis-benchmark` is C and sends what it has prepared, so the figure is Redis' own. Not here: any promise.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from tests.servers import RedisServer

# The least that can be called a delayed task: a due time in a sorted set and a payload in a hash.
STORE = """
for i = 1, #ARGV, 3 do
  redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
end
"""
BATCH = 500  # tasks per call, as schedule_many sends them
IN_FLIGHT = 2  # calls under way at a time, as schedule_many has them
RANDOM = "2000000000"  # redis-benchmark writes a number up to this as 12 digits: an id as long as delayq's
ID, DUE, BODY = "__rand_int__", "1__rand_int__", "x" * 107  # 100 bytes of payload and delayq's 7 around it
NAIVE_TASKS = 2000


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What figures are measured against."""

    single_per_second: float  # tasks stored, one EVALSHA each, 500 of them in the pipeline
    batch_per_second: float  # tasks stored, 500 per EVALSHA, two of them in the pipeline
    naive_per_second: float  # tasks drained by one ZRANGEBYSCORE, ZREM, HGET and HDEL after the other
    ping_ms: float  # the median round trip of one client
    bytes_per_task: float  # of the sorted set and the hash

    def figures(self) -> list[Figure]:
        """Return the ceiling's own lines of the table."""
        lines = (
            ("raw store, one EVALSHA per task, pipeline of 500", "tasks/s", self.single_per_second),
            ("raw store, EVALSHA of 500 tasks, pipeline of 2", "tasks/s", self.batch_per_second),
            ("naive drain, ZRANGEBYSCORE + ZREM in a loop", "tasks/s", self.naive_per_second),
            ("round trip, p50 of PING", "ms", self.ping_ms),
            ("raw zset + hash", "B/task", self.bytes_per_task),
        )
        return [Figure(bench="0", name=name, unit=unit, runs=(value,)) for name, unit, value in lines]


async def measure(server: RedisServer, *, quick: bool) -> Ceiling:
    """Measure on an empty server, and leave it empty."""
    tasks = 50_000 if quick else 200_000
    with server.client() as redis:
        store = ("EVALSHA", redis.script_load(STORE), "2", "raw:zset", "raw:hash")
        single = await _benchmark(server, tasks, 500, *store, ID, DUE, BODY)
        redis.flushall()
        before = _used(redis)
        batch = await _benchmark(server, tasks // BATCH, IN_FLIGHT, *store, *(ID, DUE, BODY) * BATCH)
        held = (_used(redis) - before) / redis.zcard("raw:zset")
        naive = _naive(redis)
        redis.flushall()
    ping = await _benchmark(server, 20_000, 1, "PING")
    return Ceiling(single["rps"], batch["rps"] * BATCH, naive, ping["p50"], held)


async def _benchmark(server: RedisServer, calls: int, pipeline: int, *command: str) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *("redis-benchmark", "-p", str(server.port), "-c", "1", "-r", RANDOM, "--precision", "3", "--csv"),
        *("-n", str(calls), "-P", str(pipeline)),
        *command,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    # "the command","rps","avg","min","p50","p95","p99","max"; the header comes before it.
    cells = [cell.strip('"') for cell in out.decode().splitlines()[-1].rsplit(",", 7)]
    return {"rps": float(cells[1]), "p50": float(cells[4])}


def _used(redis: Any) -> int:  # noqa: ANN401 -- its stubs mix in async
    return int(redis.info("memory")["used_memory"])


def _naive(redis: Any) -> float:  # noqa: ANN401 -- as above
    """Drain task by task, as a first draft of a delay queue would: four round trips each."""
    began = time.perf_counter()
    for _ in range(NAIVE_TASKS):
        [task_id] = redis.zrangebyscore("raw:zset", "-inf", "+inf", start=0, num=1)
        redis.zrem("raw:zset", task_id)
        redis.hget("raw:hash", task_id)
        redis.hdel("raw:hash", task_id)
    return NAIVE_TASKS / (time.perf_counter() - began)

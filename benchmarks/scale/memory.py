"""What tasks take of Redis' memory: all of it, and key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures import once

if TYPE_CHECKING:
    from benchmarks.figures import Figure
    from benchmarks.scale.stage import Stage

SMALL_BYTES, LARGE_BYTES = 100, 1024
LARGE_TASKS = 1_000_000
SAMPLES = 10_000  # of a hash: to weigh ten million values would hold Redis for seconds


def filled(stage: Stage) -> list[Figure]:
    """Store the tasks, and say what they take."""
    rate, used = _grown(stage, stage.tasks, SMALL_BYTES)
    found = [
        once("A", "stored per second, one client", "tasks/s", rate),
        once("A", f"used_memory, {SMALL_BYTES} B of payload", "B/task", used),
    ]
    with stage.server.client() as redis:
        for name in ("delayed", "tasks"):
            keys = [getattr(shard, name) for shard in stage.commands.shards]
            sizes = [int(redis.memory_usage(key, samples=SAMPLES) or 0) for key in keys]
            found.append(once("A", f"  MEMORY USAGE of {name}", "B/task", sum(sizes) / stage.tasks))
    return found


def large(stage: Stage) -> list[Figure]:
    """Store larger ones, say what they take, and forget them."""
    count = min(stage.tasks, LARGE_TASKS)
    _, used = _grown(stage, count, LARGE_BYTES)
    with stage.server.client() as redis:
        redis.flushall()
    return [once("A", f"used_memory, {LARGE_BYTES:,} B of payload", "B/task", used)]


def _grown(stage: Stage, count: int, payload_bytes: int) -> tuple[float, float]:
    before = stage.info("memory")["used_memory"]
    rate = stage.fill(count, payload_bytes)
    return rate, (stage.info("memory")["used_memory"] - before) / count

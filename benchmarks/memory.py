"""E: what a delayed task takes of Redis' memory, in every flavour at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq import NewTask, SyncClient
from delayq.protocol.keys import Keys

from benchmarks.figures import Figure, at_most
from benchmarks.stage import PAYLOAD, QUEUE
from tests.servers import FLAVOURS, RedisServer

if TYPE_CHECKING:
    from benchmarks.stage import Stage

TASKS, HOUR_MS = 100_000, 3_600_000


async def run(stage: Stage) -> list[Figure]:
    """Measure the server at hand, and the other flavours beside it; persistence does not change what is kept."""
    if stage.mode != "off":
        return []
    figures = []
    for flavour in FLAVOURS:
        server = RedisServer.start(flavour, dir=stage.file(flavour))
        try:
            figures += _measure(flavour, server, stage)
        finally:
            server.stop()
    return figures


def _measure(flavour: str, server: RedisServer, stage: Stage) -> list[Figure]:
    with server.client() as redis, SyncClient(server.url, queue=QUEUE) as client:
        _fill(client, 1000)  # scripts and buffers are there before the count begins
        redis.flushall()
        before = _used(redis)
        _fill(client, TASKS)
        used = (_used(redis) - before) / TASKS
        keys = Keys("delayq", QUEUE, 0)
        counted = sum(_usage(redis, key) for key in (keys.delayed, keys.tasks)) / TASKS
    base, name = stage.ceiling.bytes_per_task, "raw keys"
    return [
        Figure(
            bench="E",
            name=f"{flavour}, used_memory",
            unit="B/task",
            runs=(used,),
            target=at_most(290),
            base=base,
            base_name=name,
        ),
        Figure(bench="E", name=f"{flavour}, MEMORY USAGE of both keys", unit="B/task", runs=(counted,)),
    ]


def _fill(client: SyncClient, tasks: int) -> None:
    client.schedule_many(NewTask(PAYLOAD, delay_ms=HOUR_MS + at) for at in range(tasks))


def _used(redis: Any) -> int:  # noqa: ANN401 -- its stubs mix in async
    return int(redis.info("memory")["used_memory"])


def _usage(redis: Any, key: str) -> int:  # noqa: ANN401 -- as above
    return int(redis.memory_usage(key, samples=0))

"""How long a Cluster stands still while one shard moves to another node: its keys are moved whole, one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure
from tests.servers import RedisServer

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scale.stage import Stage

MOST_TASKS = 2_000_000  # at twice that, the hash is more than the 512 MiB that Redis takes in one piece
TIMEOUT_MS = 120_000


def moved(stage: Stage, directory: Path) -> list[Figure]:
    """MIGRATE the keys of shard 0 to another server: that is all that moving a slot does to them."""
    tasks = stage.tasks // stage.shards
    if tasks > MOST_TASKS:
        return []
    target = RedisServer.start(stage.server.flavour, dir=directory / "target")
    try:
        took = {name: _moved(stage, target, name) for name in ("delayed", "tasks")}
    finally:
        target.kill()
    return [
        Figure(bench="D", name=f"MIGRATE of {name}, one shard", unit="s", runs=(seconds,))
        for name, seconds in took.items()
    ]


def _moved(stage: Stage, target: RedisServer, name: str) -> float:
    key = getattr(stage.commands.shards[0], name)
    with stage.server.client() as redis:
        redis.connection_pool.connection_kwargs["socket_timeout"] = TIMEOUT_MS / 1000
        redis.connection_pool.disconnect()
        began = time.perf_counter()
        answer: Any = redis.execute_command("MIGRATE", target.host, target.port, key, 0, TIMEOUT_MS)
    if answer not in (True, "OK"):
        raise RuntimeError(f"MIGRATE {key}: expected OK, got {answer!r}")
    return time.perf_counter() - began

"""One run with the build that PYTHONPATH names: `python -m benchmarks.pairs.measure CASE REDIS_PORT`, figures as JSON.

Names of one build only (keys.py, fields with new names) are not used here: the other build may be older or newer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis
import yaml
from delayq import Client, NewTask

from benchmarks.handlers import LEDGER
from tests.processes import Process
from tests.upgrade.baselines import naming

PAYLOAD = {"n": "x" * 92}
QUEUE, STATS = "pairs", "delayq:{pairs:0}:stats"
HOUR_MS, COROUTINES = 3_600_000, 100
Figures = dict[str, float]


def cpu_seconds(pid: int) -> float:
    """Return the time that all threads of a process have spent on a CPU."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class Clock:
    """Wall time, and CPU time of one process and of Redis, since the start."""

    def __init__(self, server: redis.Redis, pid: int) -> None:
        self._pids = (pid, int(server.info("server")["process_id"]))
        self._cpu, self._began = [cpu_seconds(each) for each in self._pids], time.perf_counter()

    def figures(self, tasks: int) -> Figures:
        """Return tasks per second, and µs of CPU per task."""
        wall = time.perf_counter() - self._began
        process, server = (cpu_seconds(pid) - cpu for pid, cpu in zip(self._pids, self._cpu, strict=True))
        return {
            "tasks/s": tasks / wall,
            "CPU of the process, µs/task": process / tasks * 1e6,
            "CPU of Redis, µs/task": server / tasks * 1e6,
        }


NOOP = {"callable": "benchmarks.handlers:noop"}


async def drain(
    server: redis.Redis,
    url: str,
    *,
    concurrency: int,
    tasks: int,
    handler: dict[str, str] = NOOP,
    **of_task: object,
) -> Figures:
    """Let one worker handle a backlog of no-op tasks, stored while the worker is stopped (SIGSTOP)."""
    with tempfile.TemporaryDirectory() as folder:
        document = _document(server, concurrency, handler, Path(folder))
        named = naming(str(document), os.environ)
        argv = (sys.executable, "-m", "delayq", "worker", *named, "--port", "0")
        worker = Process.start(*argv, env={LEDGER: "/dev/null"})
        try:
            worker.wait_line('"started"')
            await _store(url, tasks // 10, of_task)
            await _until_acked(server, tasks // 10)
            worker.pause()
            await _store(url, tasks, of_task)
            clock = Clock(server, worker.pid)
            worker.resume()
            await _until_acked(server, tasks // 10 + tasks)
            return clock.figures(tasks)
        finally:
            worker.stop()


def _document(server: redis.Redis, concurrency: int, handler: dict[str, str], folder: Path) -> Path:
    port = server.connection_pool.connection_kwargs["port"]
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1", "port": port}},
        "handler": {"python": handler},
        "worker": {"concurrency": concurrency},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": QUEUE}}
    path = folder / "queue.yaml"
    path.write_text(yaml.safe_dump({**head, "spec": spec}))
    return path


async def _store(url: str, tasks: int, of_task: dict[str, Any]) -> None:
    async with Client(url, queue=QUEUE) as client:
        await client.schedule_many(
            NewTask(**{"payload": PAYLOAD, "delay_ms": 0, **of_task}) for _ in range(tasks)
        )


async def _until_acked(server: redis.Redis, tasks: int) -> None:
    deadline = time.monotonic() + 120
    while int(server.hget(STATS, "acked") or 0) < tasks:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{tasks} tasks were not acked within 120 s")
        await asyncio.sleep(0.002)


async def schedule(server: redis.Redis, url: str, *, coroutines: int, tasks: int) -> Figures:
    """Store single tasks from so many coroutines."""

    async def some(client: Client) -> None:
        for at in range(tasks // coroutines):
            await client.schedule(dict(PAYLOAD), delay_ms=HOUR_MS + at)

    async with Client(url, queue=QUEUE) as client:
        await client.counts()  # connected before the clock starts
        clock = Clock(server, _own_pid())
        await asyncio.gather(*(some(client) for _ in range(coroutines)))
        return clock.figures(tasks) | {"memory, B/task": _bytes_per_task(server, tasks)}


async def schedule_many(server: redis.Redis, url: str, *, tasks: int) -> Figures:
    """Store tasks in batches."""
    async with Client(url, queue=QUEUE) as client:
        await client.counts()
        clock = Clock(server, _own_pid())
        await client.schedule_many(NewTask(dict(PAYLOAD), delay_ms=HOUR_MS + at) for at in range(tasks))
        return clock.figures(tasks)


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


def _bytes_per_task(server: redis.Redis, tasks: int) -> float:
    keys = server.keys("delayq:{pairs:*")
    return sum(int(server.memory_usage(key, samples=0) or 0) for key in keys) / tasks


CASES = {
    "worker, 32 slots": lambda server, url: drain(server, url, concurrency=32, tasks=40_000),
    "worker, 100 slots": lambda server, url: drain(server, url, concurrency=100, tasks=60_000),
    "worker, 500 slots": lambda server, url: drain(server, url, concurrency=500, tasks=60_000),
    "worker, 1 slot": lambda server, url: drain(server, url, concurrency=1, tasks=4_000),
    "schedule, 1 coroutine": lambda server, url: schedule(server, url, coroutines=1, tasks=4_000),
    "schedule, 100 coroutines": lambda server, url: schedule(
        server, url, coroutines=COROUTINES, tasks=20_000
    ),
    "schedule_many": lambda server, url: schedule_many(server, url, tasks=50_000),
}


def main(case: str, port: str) -> None:
    """Measure one case on the Redis at this port, which is emptied first."""
    with redis.Redis(port=int(port)) as server:
        server.flushall()
        print(json.dumps(asyncio.run(CASES[case](server, f"redis://127.0.0.1:{port}"))))


if __name__ == "__main__":
    main(*sys.argv[1:])

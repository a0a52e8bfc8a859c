"""`python -m benchmarks.bulk`: 400,000 tasks, 350,000 of them with one tag: count, reschedule and cancel those.

Prints the seconds of each operation, and for how long its scripts held Redis: the slow log of Redis, configured to
record every command. A script that holds Redis for long delays the claims of all workers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import redis
from delayq import NewTask, SyncClient

from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TAG, HOUR_MS = "customer:4711", 3_600_000
ENTRIES = 1_000_000  # of the slow log: more than an operation makes calls


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("--tasks", type=int, default=400_000, help="tasks in the queue (%(default)s)")
    parser.add_argument("--share", type=float, default=0.875, help="share that has the tag (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder))
        url = f"redis://127.0.0.1:{server.port}"
        try:
            with redis.Redis(port=server.port) as log, SyncClient(url, queue="bulk") as client:
                client.schedule_many(_tasks(options.tasks, int(options.tasks * options.share)))
                log.config_set("slowlog-max-len", ENTRIES)
                log.config_set("slowlog-log-slower-than", 0)
                _print("count by tag", log, lambda: client.count_many(tag=TAG).tasks)
                _print(
                    "reschedule by tag", log, lambda: client.reschedule_many(tag=TAG, shift_ms=HOUR_MS).tasks
                )
                _print("cancel by tag", log, lambda: client.cancel_many(tag=TAG).tasks)
                _print("cancel by due time", log, lambda: client.cancel_many(due_from_ms=0).tasks)
        finally:
            server.stop()
    return 0


def _tasks(tasks: int, tagged: int) -> Iterator[NewTask]:
    for at in range(tasks):
        yield NewTask({"n": "x" * 92}, delay_ms=HOUR_MS + at, tags=(TAG,) if at < tagged else ())


def _print(name: str, log: redis.Redis, run: Callable[[], int]) -> None:
    log.slowlog_reset()
    began = time.perf_counter()
    tasks = run()
    seconds = time.perf_counter() - began
    calls = sorted(
        each["duration"] / 1000 for each in log.slowlog_get(ENTRIES) if each["command"][:4] == b"EVAL"
    )
    per_mille = quantiles(calls, n=1000, method="inclusive")
    print(
        f"{name:<20}{tasks:>9,} tasks in {seconds:5.1f} s {len(calls):>9,} calls, each held Redis for"
        f" {median(calls):.2f} ms (median), {per_mille[989]:.2f} (p99), {per_mille[998]:.2f} (p99.9),"
        f" {calls[-1]:.2f} (longest)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())

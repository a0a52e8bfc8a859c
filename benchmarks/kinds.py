"""`python -m benchmarks.kinds`: one worker with a callable, with a typed kind and with a batch handler, in alternation.

All do nothing. A batch has half as many tasks as there are slots, so that the next one is claimed while it runs.
"Redis alone" is what Redis could do in the same run if it never waited for the worker: the inverse of
its CPU time for the claim and the ack of a task.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import redis
from delayq import App

from benchmarks.pairs.measure import NOOP, Figures, drain
from tests.servers import PREFERRED, RedisServer

BATCH = "DELAYQ_BENCH_BATCH"  # tells the worker the size
app, batches = App(), App()


@app.task
async def single(n: str) -> None:
    """Do nothing."""


@batches.task(batch=int(os.environ.get(BATCH, "50")))
async def many(items: list[dict[str, str]]) -> None:
    """Do nothing."""


CASES: dict[str, dict[str, Any]] = {
    "callable": {"handler": NOOP},
    "kind": {"handler": {"app": "benchmarks.kinds:app"}, "kind": "single"},
    "batch": {"handler": {"app": "benchmarks.kinds:batches"}, "kind": "many"},
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kinds", description=__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[100, 500], metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each case (%(default)s)")
    parser.add_argument("--tasks", type=int, default=60_000, help="tasks of a run (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder))
        try:
            for slots in options.slots:
                os.environ[BATCH] = str(slots // 2)
                _print(slots, _rounds(server, slots, options.rounds, options.tasks))
        finally:
            server.stop()
    return 0


def _rounds(server: RedisServer, slots: int, rounds: int, tasks: int) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {name: [] for name in CASES}
    url = f"redis://127.0.0.1:{server.port}"
    with redis.Redis(port=server.port) as client:
        for number in range(rounds):
            for name, case in CASES.items():
                client.flushall()
                run = drain(client, url, concurrency=slots, tasks=tasks, **case)
                found[name].append(asyncio.run(run))
            print(f"\r{slots} slots: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _print(slots: int, found: dict[str, list[Figures]]) -> None:
    for name, runs in found.items():
        speed, process, server = (median(run[figure] for run in runs) for figure in runs[0])
        redis_alone = [1e6 / run["CPU of Redis, µs/task"] for run in runs]
        shares = [run["tasks/s"] / each for run, each in zip(runs, redis_alone, strict=True)]
        pairs = [run["tasks/s"] / base["tasks/s"] for run, base in zip(runs, found["callable"], strict=True)]
        print(
            f"{slots:>4} slots {name:<9}{speed:>9,.0f} tasks/s  {process:5.1f} µs CPU of the worker"
            f"  {server:5.1f} µs of Redis  Redis alone {median(redis_alone):>9,.0f}/s"
            f"  {median(shares):.2f} of it ({min(shares):.2f}–{max(shares):.2f})"
            f"  {median(pairs):.2f} of the callable ({min(pairs):.2f}–{max(pairs):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.schedules`: what 10,000 schedules cost an idle leader, and how soon a change is applied.

A scanner leads one queue. Its CPU time and the calls that Redis receives are counted for 30 s without schedules, and
with 10,000 daily ones, of which seven are due for a look each minute. Then single schedules are changed one after the
other: applied is when the first occurrence of the new definition exists.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import redis
import yaml
from delayq import Client
from delayq.contract.document import parse_schedule

from benchmarks.pairs.measure import cpu_seconds
from tests.processes import Process
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from delayq.contract.schedule import DelaySchedule

QUEUE = "schedules"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000, metavar="N", help="(%(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="of each idle time (%(default)s)")
    parser.add_argument("--edits", type=int, default=200, metavar="N", help="(%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder) / "redis")
        try:
            asyncio.run(_measure(server, Path(folder), options))
        finally:
            server.stop()
    return 0


async def _measure(server: RedisServer, folder: Path, options: argparse.Namespace) -> None:
    document = folder / "queue.yaml"
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1"}},
        "handler": {"python": {"callable": "benchmarks.handlers:noop"}},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": QUEUE}}
    document.write_text(yaml.safe_dump({**head, "spec": spec}))
    argv = (sys.executable, "-m", "delayq", "scanner", "--config", str(document), "--redis", server.url)
    scanner = Process.start(*argv, "--port", "0")
    try:
        scanner.wait_line('"leadership_acquired"')
        with redis.Redis(port=server.port) as counting:
            async with Client(server.url, queue=QUEUE) as client:
                _print("no schedules", await _idle(counting, scanner.pid, options.seconds))
                began = time.perf_counter()
                for first in range(0, options.schedules, 100):
                    some = range(first, min(first + 100, options.schedules))
                    await asyncio.gather(*(client.apply_schedule(_daily(number)) for number in some))
                    print(f"\r{first + 100} schedules written", end="", file=sys.stderr, flush=True)
                wrote = options.schedules / (time.perf_counter() - began)
                print(f"\r{options.schedules} schedules written, {wrote:,.0f} a second", file=sys.stderr)
                while counting.zcount(f"delayq:{{{QUEUE}:0}}:schedules", "-inf", time.time() * 1000):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                _print(f"{options.schedules} schedules", await _idle(counting, scanner.pid, options.seconds))
                await _edits(client, options.edits)
    finally:
        scanner.stop()


def _daily(number: int) -> DelaySchedule:
    return _schedule(f"daily-{number}", cron=f"{number % 60} {number // 60 % 24} * * *")


def _schedule(name: str, **spec: object) -> DelaySchedule:
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    return parse_schedule({**head, "spec": {"queueRef": {"name": QUEUE}, **spec}})


async def _idle(counting: redis.Redis, pid: int, seconds: int) -> tuple[float, float]:
    """Return CPU seconds of the scanner, and commands of Redis a second; a call counts as one."""
    calls, cpu = _calls(counting), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return cpu_seconds(pid) - cpu, (_calls(counting) - calls) / seconds


def _calls(counting: redis.Redis) -> int:
    found = counting.info("commandstats")
    return sum(
        each["calls"] for name, each in found.items() if name.startswith(("cmdstat_eval", "cmdstat_blpop"))
    )


def _print(what: str, found: tuple[float, float]) -> None:
    print(f"{what:<20}{found[0]:7.3f} CPU-s of the leader  {found[1]:6.2f} calls/s", flush=True)


async def _edits(client: Client, edits: int) -> None:
    found = []
    for number in range(edits):
        seconds = 60 + number
        began = time.perf_counter()
        await client.apply_schedule(_schedule("daily-0", everySeconds=seconds))
        while True:
            [page] = [await client.count_many(tag="@daily-0")]
            if page.tasks:
                break
        found.append(time.perf_counter() - began)
    p99 = quantiles(found, n=100)[98]
    print(f"edit to applied     {median(found) * 1000:7.1f} ms median  {p99 * 1000:6.1f} ms p99", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`make bench-http`: how many tasks per second one `delayq api` process stores, with p50 and p99 of its answers.

The Python client stores the same tasks in the same Redis, in alternation with the API. Their ratio is printed.
Redis, the API and the load share this machine: more cores give higher figures. The load is plain asyncio streams, for a
client library would take more than the API.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from delayq import Client, NewTask
from delayq.client.encoding import new_id

from tests.process.http_api import PREFIX, Served
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Send = Callable[[list[NewTask]], Awaitable[None]]

HOUR_MS = 3_600_000
PAYLOAD = {"n": "x" * 92}  # about 100 bytes of JSON


class Round(NamedTuple):
    """What one round measured, of requests or calls."""

    tasks_per_second: float
    p50_ms: float
    p99_ms: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    parser.add_argument("--connections", type=int, default=32, help="of single requests (%(default)s)")
    parser.add_argument("--singles", type=int, default=10_000, help="single tasks in a round (%(default)s)")
    parser.add_argument("--batches", type=int, default=40, help="batches in a round (%(default)s)")
    parser.add_argument("--size", type=int, default=1_000, help="tasks in a batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is printed (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder, "redis"))
        try:
            served = Served(server, Path(folder))
            try:
                asyncio.run(_measure(served, options))
            finally:
                served.process.stop()
        finally:
            server.stop()
    return 0


class Api:
    """Idle connections to the API."""

    def __init__(self, port: int) -> None:
        self._port, self._idle = port, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def single(self, tasks: list[NewTask]) -> None:
        """PUT one task."""
        [task] = tasks
        await self._send(f"PUT {PREFIX}/tasks/-/{task.task_id}", _body(task), b"201")

    async def batch(self, tasks: list[NewTask]) -> None:
        """POST a batch."""
        await self._send(
            f"POST {PREFIX}/tasks:batch",
            {"tasks": [{"id": task.task_id, **_body(task)} for task in tasks]},
            b"200",
        )

    async def _send(self, request: str, body: object, status: bytes) -> None:
        content = json.dumps(body).encode()
        reader, writer = (
            self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        )
        head = (
            f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        answer = await reader.readuntil(b"\r\n\r\n")
        if answer.split(b" ", 2)[1] != status:
            raise RuntimeError(f"expected {status.decode()}, got {answer.decode()}")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        self._idle.append((reader, writer))

    async def close(self) -> None:
        """Close them."""
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()


def _body(task: NewTask) -> dict[str, object]:
    return {"payload": task.payload, "delayMs": task.delay_ms}


async def _measure(served: Served, options: argparse.Namespace) -> None:
    api = Api(served.port)
    async with Client.from_document(served.config, url=served.server.url) as client:

        async def single(tasks: list[NewTask]) -> None:
            await client.schedule(**tasks[0]._asdict(), if_exists="keep")

        async def batch(tasks: list[NewTask]) -> None:
            await client.schedule_many(tasks, if_exists="keep")

        cases: tuple[tuple[str, tuple[Send, Send], int, int, int], ...] = (
            ("single", (api.single, single), options.singles, 1, options.connections),
            ("batch", (api.batch, batch), options.batches, options.size, 2),  # the API takes two at a time
        )
        for name, sends, calls, size, at_once in cases:
            pairs = []
            for number in range(options.rounds + 1):
                pairs.append([await _round(send, calls, size, at_once) for send in sends])
                print(f"\r{name}: round {number} of {options.rounds}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            _print(name, pairs[1:])  # the first one warms up
    await api.close()


async def _round(send: Send, calls: int, size: int, at_once: int) -> Round:
    """Send `calls` requests, `at_once` at a time."""
    work = [[NewTask(PAYLOAD, HOUR_MS, task_id=new_id()) for _ in range(size)] for _ in range(calls)]
    seconds = list[float]()

    async def one_after_the_other() -> None:
        while work:
            tasks, began = work.pop(), time.perf_counter()
            await send(tasks)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    took = time.perf_counter() - began
    percentiles = quantiles(seconds, n=100, method="inclusive")
    return Round(calls * size / took, percentiles[49] * 1000, percentiles[98] * 1000)


def _print(name: str, pairs: list[list[Round]]) -> None:
    for at, how in enumerate(("HTTP API", "Python client")):
        rounds = [pair[at] for pair in pairs]
        print(
            f"{name:<8}{how:<15}{median(each.tasks_per_second for each in rounds):>9,.0f} tasks/s"
            f"  p50 {median(each.p50_ms for each in rounds):7.2f} ms"
            f"  p99 {median(each.p99_ms for each in rounds):7.2f} ms",
            flush=True,
        )
    ratios = [http.tasks_per_second / python.tasks_per_second for http, python in pairs]
    print(f"{name:<8}HTTP/Python {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    sys.exit(main())

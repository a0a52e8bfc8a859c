"""Where a benchmark runs: a Redis of its own, a queue on it, real `delayq` processes, all watched from outside."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from delayq import Client, SyncClient
from delayq.protocol.keys import Keys

from benchmarks.handlers import LEDGER
from tests.processes import Process, delayq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.ceiling import Ceiling
    from tests.servers import RedisServer

ROOT = Path(__file__).parent.parent
QUEUE = "bench"
POLL_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
# 93 letters and the JSON around them: 100 bytes.
PAYLOAD = {"n": "x" * 92}


class Progress(NamedTuple):
    """One look at the queue's counters, and Redis' clock at that look."""

    now: float  # seconds
    acked: int


@dataclass
class Stage:
    """One Redis, with or without persistence."""

    server: RedisServer
    mode: str  # "off" or "everysec", Redis' own words
    ceiling: Ceiling
    quick: bool
    dir: Path
    _files: int = field(default=0)

    @property
    def repeats(self) -> int:
        """How often a throughput is measured; its median counts."""
        return 1 if self.quick else 5

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """The document's default, and one that fills a claim."""
        return (250,) if self.quick else (32, 250)

    def client(self) -> Client:
        return Client(self.server.url, queue=QUEUE)

    def sync_client(self) -> SyncClient:
        return SyncClient(self.server.url, queue=QUEUE)

    def empty(self) -> None:
        """Start over, with no data and no AOF that Redis would still be rewriting."""
        with self.server.client() as redis:
            redis.flushall()

    def file(self, name: str) -> Path:
        """Return a unique path."""
        self._files += 1
        return self.dir / f"{self._files}-{name}"

    def document(self, handler: str, *, concurrency: int = 32, lease_duration_seconds: int = 30) -> Path:
        """Write a DelayQueue whose handler is one of handlers.py; everything else is a default."""
        spec = {
            "redis": {"standalone": {"host": "127.0.0.1", "port": self.server.port}},
            "handler": {"python": {"callable": f"benchmarks.handlers:{handler}"}},
            "worker": {"concurrency": concurrency},
            "delivery": {"leaseDurationSeconds": lease_duration_seconds},
        }
        head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": QUEUE}}
        path = self.file("queue.yaml")
        path.write_text(yaml.safe_dump({**head, "spec": spec}))
        return path

    @contextmanager
    def running(self, verb: str, document: Path, ledger: Path | None = None) -> Iterator[Process]:
        """Run `delayq scanner` or `delayq worker` until the block ends; SIGTERM, so that it says goodbye."""
        options = (str(document), "--port", "0")
        process = delayq(verb, *options, env={LEDGER: str(ledger or os.devnull)}, cwd=ROOT)
        try:
            process.wait_line('"started"')
            yield process
        finally:
            process.stop()

    def progress(self, redis: Any) -> Progress:  # noqa: ANN401 -- redis-py's client, typed as Any by its own stubs
        """Return how many tasks were ever acked, at what time by Redis' clock."""
        with redis.pipeline(transaction=False) as pipe:
            (seconds, micros), acked = pipe.time().hget(Keys("delayq", QUEUE, 0).stats, "acked").execute()
        return Progress(int(seconds) + int(micros) / 1e6, int(acked or 0))

    async def until_acked(self, tasks: int) -> Progress:
        """Look every other millisecond until so many tasks were acked: the looks cost 2 % of a core."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.server.client() as redis:
            while (seen := self.progress(redis)).acked < tasks:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{seen.acked} of {tasks} tasks acked within {PATIENCE_SECONDS:g} s")
                await asyncio.sleep(POLL_SECONDS)
        return seen


def cpu_seconds(process: Process) -> float:
    """Return the time a process has spent on a CPU so far, user and system: `stat` has it too, in steps of 10 ms."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

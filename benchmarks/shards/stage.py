"""A queue of some shards, on a Redis of some topology: clients, processes, and what they cost."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml
from delayq import SyncClient

from benchmarks.handlers import LEDGER
from benchmarks.stage import PATIENCE_SECONDS, PAYLOAD, ROOT, cpu_seconds
from tests.process.fleet import url_of
from tests.processes import delayq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.processes import Process
    from tests.servers import RedisServer

QUEUE = "shards"
POLL_SECONDS = 0.02  # a look counts every shard
__all__ = ["PAYLOAD", "QUEUE", "Stage", "cpu_seconds"]


@dataclass
class Stage:
    """The servers are emptied for each number of shards, and stay."""

    name: str  # of the topology
    url: str
    servers: list[RedisServer]  # those that keep tasks
    shards: int
    dir: Path
    repeats: int
    _files: int = field(default=0)

    def client(self) -> SyncClient:
        return SyncClient(self.url, queue=QUEUE, shards=self.shards)

    def empty(self) -> None:
        for server in self.servers:
            with server.client() as redis:
                redis.flushall()

    def connections(self) -> int:
        """How many clients are connected, to all servers together; our own questions are among them."""
        found = 0
        for server in self.servers:
            with server.client() as redis:
                found += sum(
                    "S" not in client["flags"] and "M" not in client["flags"]
                    for client in redis.client_list()
                )
        return found

    def redis_seconds(self) -> list[float]:
        """The processor's time that each server has used."""
        return [cpu_seconds(server.process) for server in self.servers]

    def file(self, name: str) -> Path:
        self._files += 1
        return self.dir / f"{self.name}-{self.shards}-{self._files}-{name}"

    def document(self, handler: str, *, concurrency: int) -> Path:
        spec = {
            "redis": {"standalone": {"host": "127.0.0.1"}},  # --redis says where
            "shards": self.shards,
            "handler": {"python": {"callable": f"benchmarks.handlers:{handler}"}},
            "worker": {"concurrency": concurrency},
        }
        head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": QUEUE}}
        path = self.file("queue.yaml")
        path.write_text(yaml.safe_dump({**head, "spec": spec}))
        return path

    @contextmanager
    def running(self, verb: str, document: Path, ledger: Path | None = None) -> Iterator[Process]:
        """Run `delayq scanner` or `delayq worker` until the block ends."""
        options = (str(document), "--redis", self.url, "--port", "0")
        process = delayq(verb, *options, env={LEDGER: str(ledger or os.devnull)}, cwd=ROOT)
        try:
            process.wait_http(url_of(process, "readyz"))
            yield process
        finally:
            process.stop()

    def until_acked(self, client: SyncClient, tasks: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := int(client.counts().stats.get("acked", 0))) < tasks:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen} of {tasks} tasks acked within {PATIENCE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)

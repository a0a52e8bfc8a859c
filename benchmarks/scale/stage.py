"""A Redis with very many delayed tasks in it, stored through the real client."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import cached_property
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from delayq import NewTask, SyncClient
from delayq.connection import Address, SyncConnection
from delayq.contract import Limits
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.protocol.commands import Call

    from tests.servers import RedisServer

QUEUE = "scale"
LIMITS = Limits(max_length=1_000_000_000, max_bytes=1 << 50)  # of 8 shards, none is exactly an eighth
SPREAD_MS = 30 * 86_400_000
PRIME = 2_147_483_647  # times this, one task after the other is due anywhere within the spread
SAID_EVERY = 1_000_000


@dataclass
class Stage:
    """A queue of `tasks` in `shards`; half of them are due already, the others within 30 days."""

    server: RedisServer
    tasks: int
    shards: int
    say: Callable[[str], None]

    @cached_property
    def commands(self) -> Commands:
        return Commands(QUEUE, shards=self.shards)

    @cached_property
    def connection(self) -> SyncConnection:
        return SyncConnection(Address.from_url(self.server.url))

    def run(self, call: Call[Any]) -> Any:  # noqa: ANN401 -- as the connection answers
        return self.connection.run([call])[0]

    def fill(self, count: int, payload_bytes: int) -> float:
        """Store so many tasks; returns how many a second that was."""
        letters = random.Random(7).choices(ascii_letters, k=payload_bytes - len('{"n":""}'))
        payload = {"n": "".join(letters)}  # by chance, for Redis compresses what it writes to disk
        began = time.perf_counter()
        with SyncClient(self.server.url, queue=QUEUE, shards=self.shards, limits=LIMITS) as client:
            client.schedule_many(self._tasks(count, payload, began))
        return count / (time.perf_counter() - began)

    def _tasks(self, count: int, payload: dict[str, str], began: float) -> Iterator[NewTask]:
        for nth in range(count):
            due_in = nth * PRIME % SPREAD_MS if nth % 2 else 0
            yield NewTask(payload, delay_ms=due_in, task_id=task_id(nth))
            if nth and nth % SAID_EVERY == 0:
                self.say(f"{nth:,} tasks stored in {time.perf_counter() - began:.0f} s")

    def info(self, section: str) -> dict[str, Any]:
        with self.server.client() as redis:
            found: Any = redis.info(section)
        return dict(found)


def task_id(nth: int) -> str:
    """Twelve characters, as those that delayq draws."""
    return f"t{nth:011d}"

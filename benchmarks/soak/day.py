"""A day's work for a queue, minute by minute: what users do to it, in a steady mix. The caller keeps the time."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delayq import NewTask
from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import Commands
from delayq.protocol.results import Cancelled, State

from tests.process.fleet import until

if TYPE_CHECKING:
    from delayq import SyncClient
    from redis import Redis

    from tests.process.fleet import Fleet
    from tests.processes import Process

STOCK: Final = 2000
"""Tasks that wait for weeks, so that no key is ever empty for want of work."""
SHARDS: Final = 2
DEAD_LETTERS: Final = 20
SPEC: Final[dict[str, Any]] = {
    "redis": {"standalone": {"host": "127.0.0.1"}, "timeoutSeconds": 60},
    "handler": {"python": {"callable": "soak_handlers:do"}},
    # Long where a time runs out, for clocks may run a hundred times as fast.
    "delivery": {
        "leaseDurationSeconds": 600,
        "backoff": {"delaysSeconds": [1, 5]},
        "handlerTimeoutSeconds": 300,
    },
    "retention": {"deadLetters": {"count": DEAD_LETTERS}},
    "shards": SHARDS,
    "limits": {
        "ratePerSecond": 100_000,
        "maxInFlight": 10_000,
        "maxBytes": 1 << 30,
    },  # never reached, but counted
}
SPREAD_MS: Final = 120_000
LAPSE_MS: Final = 1000
# Of a thousand tasks: the others just succeed.
MIX: Final = {"fail": 50, "later": 20, "bury": 30}
WEEK_MS: Final = 7 * 86_400_000


@dataclass
class Day:
    """The work, drawn by chance but the same each time."""

    fleet: Fleet
    client: SyncClient
    per_minute: int
    scheduled: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def stock(self) -> None:
        """Schedule what is never due."""
        self.client.schedule_many(
            NewTask("stock", delay_ms=WEEK_MS + nth, task_id=f"stock-{nth}") for nth in range(STOCK)
        )

    def rush(self, count: int) -> None:
        """Have so many fall due at once. Redis' tables keep their size unless a tenth is left: so they begin large."""
        self.client.schedule_many(NewTask("done", delay_ms=0) for _ in range(count))
        self.scheduled += count

    def minute(self) -> None:
        """Schedule a minute's tasks; cancel some, put some off, claim one and forget it, as a dying worker would."""
        tasks = [self._task() for _ in range(self.per_minute)]
        self.client.schedule_many(tasks)
        self.scheduled += len(tasks)
        late = [str(task.task_id) for task in tasks if (task.delay_ms or 0) > SPREAD_MS * 3 // 4]
        for task_id in late[: self.per_minute // 50]:
            if self.client.cancel(task_id) is Cancelled.CANCELLED:
                self.client.reschedule("stock-1", delay_ms=WEEK_MS)
        self.client.dlq_redrive([letter.id for letter in self.client.list(State.DEAD, limit=1)])
        self._die()

    def _task(self) -> NewTask:
        drawn = self.chance.randrange(1000)
        kind = "done"
        for name, share in MIX.items():
            kind, drawn = (name if 0 <= drawn < share else kind), drawn - share
        task_id = f"task-{self.scheduled}-{self.chance.getrandbits(32):08x}"
        return NewTask(kind, delay_ms=self.chance.randrange(SPREAD_MS), task_id=task_id)

    def _die(self) -> None:
        connection = SyncConnection(Address.from_url(self.fleet.server.url))
        try:
            commands = Commands(self.fleet.queue, shards=SHARDS)
            connection.run([commands.claim(shard, 1, LAPSE_MS) for shard in range(SHARDS)])
        finally:
            connection.close()

    def rest(self, *, timeout_s: float = 60) -> None:
        """Wait until nothing is left but the stock and as many dead letters as are kept."""

        def rests() -> bool:
            counts = self.client.counts()
            moving = counts.retrying + counts.suspect + counts.in_flight
            return not moving and counts.waiting == STOCK and counts.dead <= DEAD_LETTERS

        until(rests, "only the stock is left", timeout_s=timeout_s)


def held(redis: Redis) -> dict[str, int]:
    """Return the bytes that keys of each name take, in all shards, by Redis' own count over all of their members."""
    sizes: Counter[str] = Counter()
    for key in redis.scan_iter(count=1000):
        sizes[key.rpartition(":")[2]] += int(
            redis.memory_usage(key, samples=0) or 0
        )  # none: it expired meanwhile
    return dict(sorted(sizes.items()))


def resident_kib(process: Process) -> int:
    """Return the memory a process has at this moment."""
    [found] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(found)

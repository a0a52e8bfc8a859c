"""How long Redis works on each call: by its own SLOWLOG, in µs, so neither Python nor the network is in it.

Calls take turns, and what one takes out another puts back: the queue stays as long as it is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from delayq.protocol.results import Position, State

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.scale.stage import SPREAD_MS, task_id

if TYPE_CHECKING:
    from delayq.protocol.commands import Call
    from delayq.protocol.scripts import Argument

    from benchmarks.scale.stage import Stage

LEASE_MS = 60_000
HORIZONS_MS = (10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)  # what a scanner counts for each scrape
DEFAULT_BATCH, LARGEST_BATCH = 32, 250  # worker.concurrency says how many are claimed at once
BODY = b"\x01" + b"x" * 106
OPTIONS: dict[str, Any] = {
    "if_exists": "reject",
    "repeated": 0,
    "max_length": 1_000_000_000,
    "max_delay_ms": 10**12,
}
NEW_PER_CALL = 500  # tasks in a round trip of schedule_many
PROMISED_MS = {f"claim {DEFAULT_BATCH}": 1.0, "counts": 1.0}
WARM_UP = 5


class Timed:
    """Calls on one stage, with what SLOWLOG said of each."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.commands = stage, stage.commands
        self.ms: dict[str, list[float]] = defaultdict(list)
        self._new = 0

    def measure(self, rounds: int) -> None:
        """Take turns, shard after shard."""
        with self.stage.server.client() as self._redis:
            self._redis.config_set("slowlog-max-len", 8)
            self._redis.config_set("slowlog-log-slower-than", 0)
            for nth in range(-WARM_UP, rounds):
                if nth == 0:
                    self.ms.clear()
                self._round(nth % self.stage.shards, nth + WARM_UP)
            self._redis.config_set("slowlog-log-slower-than", -1)

    def _round(self, shard: int, nth: int) -> None:
        commands = self.commands
        for batch in (DEFAULT_BATCH, LARGEST_BATCH):
            claimed = self._call(f"claim {batch}", commands.claim(shard, batch, LEASE_MS))
            members = [lease.member for lease in claimed.leases]
            back = [item for member in members for item in (member, 0)]
            if batch == DEFAULT_BATCH:
                self._call("ack 32", commands.ack(shard, members))
            else:
                self._call("release 250", commands.release(shard, back))
        self._call("counts", commands.counts(shard, HORIZONS_MS))
        self._call("wake", commands.wake(shard))
        for size in (NEW_PER_CALL, 1):
            self._call(f"schedule {size}", commands.schedule(shard, self._new_tasks(size), **OPTIONS))
        odd = task_id((nth * 7919 * 2 + 1) % self.stage.tasks)
        self._call("reschedule", commands.reschedule(odd, f"+{self._delay()}", max_delay_ms=10**12))
        self._call("get", commands.get(odd))
        self._call("cancel", commands.cancel(odd))
        middle = Position(time.time() * 1000, b"")
        self._call("list 50 from the middle", commands.list(shard, State.SCHEDULED, after=middle, limit=50))

    def _new_tasks(self, count: int) -> list[Argument]:
        tasks: list[Argument] = []
        for _ in range(count):
            self._new += 1
            tasks += f"n{self._new:011d}", f"+{self._delay()}", BODY
        return tasks

    def _delay(self) -> int:
        return self._new * 7919 * 104_729 % SPREAD_MS

    def _call(self, name: str, call: Call[Any]) -> Any:  # noqa: ANN401 -- as the connection answers
        answer = self.stage.run(call)
        log: Any = self._redis.slowlog_get(8)
        latest = next(entry for entry in log if entry["command"].startswith(b"EVAL"))
        self.ms[name].append(int(latest["duration"]) / 1000)
        return answer


def figures(timed: Timed, first: Timed) -> list[Figure]:
    """Median and p99 of each, as multiples of those of the shortest queue."""
    return [
        Figure(
            bench="B",
            name=f"{name}, p{percent}",
            unit="ms",
            runs=(percentile(ms, percent),),
            target=at_most(PROMISED_MS[name]) if name in PROMISED_MS else None,
            base=percentile(first.ms[name], percent) if timed is not first else None,
            base_name=f"{first.stage.tasks:,}",
        )
        for name, ms in timed.ms.items()
        for percent in (50, 99)
    ]

"""Load on a queue while its servers fail: what was confirmed and when, what ran, and what may not have happened.

About 500 tasks a second, half of which replicas have to confirm. Not here: how servers fail.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from delayq import Durability, NewTask, SyncClient
from delayq.errors import DelayQError
from delayq.protocol.keys import Keys

from tests.process.fleet import check_runs, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import Fleet, NewFleet, Role
    from tests.servers import RedisServer
    from tests.topologies.kinds import Servers

BATCH, PAUSE_SECONDS = 25, 0.1
LEASE_SECONDS = 2
BEFORE_SECONDS = 5.0
"""How long before a failure a run may have begun that is repeated: a lease, and what a slow machine adds."""
GENEROUS_SECONDS = 20.0
"""Resuming takes about one second; CI's machines are slow."""
CREW: tuple[Role, ...] = ("worker", "worker", "scanner", "scanner")
SPEC: dict[str, Any] = {
    "worker": {"concurrency": 50},
    "delivery": {
        "leaseDurationSeconds": LEASE_SECONDS,
        "maxCrashes": 1000,
        "backoff": {"delaysSeconds": [0, 1]},
    },
}


@dataclass(eq=False)
class Producer(threading.Thread):
    """Schedules without pause and remembers when which task was confirmed; it gives up on none and repeats none."""

    prefix: str
    client: SyncClient
    after_ms: int = 0
    """Tasks fall due in the second after that."""
    stop: threading.Event = field(default_factory=threading.Event)
    sent: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # an error came back: it may be stored or not
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def run(self) -> None:
        nth = 0
        while not self.stop.is_set():
            ids = [f"{self.prefix}-{nth + each}" for each in range(BATCH)]
            nth += len(ids)
            tasks = [NewTask(None, delay_ms=self.after_ms + hash(id_) % 1000, task_id=id_) for id_ in ids]
            self.sent.update(dict.fromkeys(ids, time.time()))
            try:
                self.client.schedule_many(tasks)
            except DelayQError as error:
                self.unsure.update(ids)
                self.errors[type(error).__name__] += 1
            else:
                self.confirmed.update(dict.fromkeys(ids, time.time()))
            self.stop.wait(PAUSE_SECONDS)

    def end(self) -> None:
        self.stop.set()
        self.join()


@contextmanager
def producing(*producers: Producer) -> Iterator[None]:
    """Until the block ends."""
    for each in producers:
        each.start()
    try:
        yield
    finally:
        for each in producers:
            each.end()


@dataclass
class Storm:
    """A crew at work on a topology, and producers."""

    fleet: Fleet
    servers: Servers
    shards: int
    plain: Producer
    safe: Producer
    """Its tasks are confirmed by replicas."""

    @property
    def keys(self) -> list[Keys]:
        return [Keys("delayq", self.fleet.queue, shard) for shard in range(self.shards)]

    def resumed(self, since: float, what: str, *producers: Producer) -> float:
        """Seconds from `since`, a time of day, until producers are served again and what they then sent has run."""
        asked = producers or (self.plain, self.safe)
        waited_ms = self.fleet.waited_for_core_ms()
        until(lambda: self._first_runs(asked, since), f"{what}: all goes on")
        waited_ms = self.fleet.waited_for_core_ms() - waited_ms
        seconds = max(self._first_runs(asked, since)) - since
        errors = f"errors {dict(self.plain.errors)} {dict(self.safe.errors)}"
        print(f"{what}: resumed within {seconds:.2f} s; {errors}")
        assert seconds < GENEROUS_SECONDS + max(waited_ms, 0) / 1000
        return seconds

    def _first_runs(self, producers: tuple[Producer, ...], since: float) -> list[float]:
        """When, of each producer, the first task that was sent after `since` began to run; none if one lacks."""
        began = {entry.id: entry.at_ms / 1000 for entry in self.fleet.ledger() if entry.event == "start"}
        found = []
        for producer in producers:
            later = {id_ for id_ in list(producer.confirmed) if producer.sent[id_] > since}
            runs = [began[id_] for id_ in later if id_ in began]
            if not runs:
                return []
            found.append(min(runs))
        return found

    def drained(self) -> None:
        until(lambda: not any(map(self._left, self.keys)), "drained", timeout_s=90)
        for keys in self.keys:
            with self.servers.on(keys) as redis:
                assert redis.hlen(keys.tasks) == redis.zcard(keys.dlq) == 0

    def _left(self, keys: Keys) -> int:
        with self.servers.on(keys) as redis:
            return sum(
                int(redis.zcard(key)) for key in (keys.delayed, keys.retry, keys.suspect, keys.processing)
            )

    def lost(self, producer: Producer) -> set[str]:
        return set(producer.confirmed) - self.fleet.ended()

    def check(self, failures: list[float]) -> None:
        """No confirmed task is lost that replicas had, none ran early, and again ran only what was in flight."""
        self.drained()
        assert [process.pid for process in self.fleet.processes if not process.alive] == []
        starts = self.fleet.starts()
        check_runs(starts)
        again = {id_: runs for id_, runs in starts.items() if len(runs) > 1}
        lost = self.lost(self.plain)
        said = f"plain {len(self.plain.confirmed)}, safe {len(self.safe.confirmed)}"
        print(f"confirmed {said}; lost {len(lost)} of the plain ones; ran again {len(again)}")
        assert self.lost(self.safe) == set()
        for id_ in lost:
            assert near(self.plain.confirmed[id_], failures), f"{id_} was lost, and confirmed long before"
        for id_, runs in again.items():
            assert near(runs[0].at_ms / 1000, failures), f"{id_} ran again, and was not in flight: {runs}"


def near(at: float, failures: list[float]) -> bool:
    """Whether something was under way when a server failed, or before a client had noticed."""
    return any(failure - BEFORE_SECONDS <= at <= failure + GENEROUS_SECONDS for failure in failures)


@contextmanager
def storm(new_fleet: NewFleet, servers: Servers, *, replicas: int, shards: int = 1) -> Iterator[Storm]:
    """Everything runs, and is loaded, until the block ends; then producers stop, and `check` may be called."""
    fleet = new_fleet({**SPEC, "shards": shards}, server=cast("RedisServer", servers))
    fleet.start_all(*CREW)
    durability = Durability("Replicated", replicas=replicas, timeout_ms=2000)
    with (
        SyncClient(servers.url, queue=fleet.queue, shards=shards) as plain,
        SyncClient(servers.url, queue=fleet.queue, shards=shards, durability=durability) as safe,
    ):
        made = Storm(fleet, servers, shards, Producer("plain", plain), Producer("safe", safe))
        with producing(made.plain, made.safe):
            fleet.wait_more(300)
            yield made

"""What Redis takes away when it, its machine or its primary ends under load: tasks and acks that it had confirmed.

One thread schedules, another claims and acks, both with delayq's own scripts; each remembers what Redis answered. Then
the worst happens, and the data of Redis afterwards is compared with it. Not here: what may be lost.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from delayq import Durability, NewTask, SyncClient
from delayq.connection import Address, SyncConnection
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands

from tests.process.fleet import until
from tests.servers import RedisServer
from tests.syncs import Mains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ending = Callable[["Stage"], RedisServer]

QUEUE: Final = "loss"
LOG: Final = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0"}
CONFIRMING: Final = "valkey9"  # the flavour that has WAITAOF


@dataclass(frozen=True)
class Case:
    """A way to set Redis up, and a way to end it."""

    name: str
    event: str
    end: Ending
    config: dict[str, str]
    flavour: str | None = None
    durability: Durability | None = None
    replicated: bool = False


@dataclass
class Stage:
    """A server under load, and what it has confirmed so far, by task: when (monotonic seconds)."""

    server: Mains
    replica: RedisServer | None
    scheduled: dict[str, float] = field(default_factory=dict)
    acked: dict[str, float] = field(default_factory=dict)
    tried: set[str] = field(
        default_factory=set
    )  # to ack: the answer may have been lost, and the task be done
    stop: threading.Event = field(default_factory=threading.Event)
    calls: int = 0  # of schedule, confirmed or not
    seconds: float = 0.0
    safe_until: float = 0.0  # what was confirmed before then must not be missing
    ended: float = 0.0

    def kill(self) -> None:
        """End Redis; no process continues when it is back."""
        self.ended = time.monotonic()
        self.server.kill()
        self.stop.set()

    def wait(self, part: float, *, acked: int = 20, calls: int = 0) -> None:
        """Let the load go on for a part of the time there is, and for so many acks and calls in any case."""
        acked, calls = len(self.acked) + acked, self.calls + calls
        deadline = time.monotonic() + part * self.seconds
        until(
            lambda: time.monotonic() > deadline and len(self.acked) >= acked and self.calls >= calls, "load"
        )


@dataclass(frozen=True)
class Loss:
    """What was confirmed, what of it is gone, and which acked tasks are there again, to run once more."""

    case: Case
    confirmed: int
    lost: frozenset[str]
    too_early: frozenset[str]  # lost though they were confirmed before what makes them safe
    acked: int
    again: frozenset[str]
    window_seconds: float  # from the confirmation of the oldest loss to the end

    def row(self) -> str:
        """Return a line of the table."""
        numbers = f"{self.confirmed:,} | {len(self.lost):,} | {self.acked:,} | {len(self.again):,}"
        window = f"{self.window_seconds:.1f} s" if self.lost or self.again else ""
        return f"| {self.case.name} | {self.case.event} | {numbers} | {window} |"


HEAD: Final = (
    "| Redis | what happened | scheduled | of these lost | acked | of these run again | reaching back |\n"
    "|---|---|---|---|---|---|---|"
)


def measure(case: Case, directory: Path, flavour: str, *, seconds: float) -> Loss:
    """Put it under load for so long, end it, and count."""
    with _stage(case, directory, case.flavour or flavour) as stage:
        stage.seconds = seconds
        with _load(stage, case.durability):
            survivor = case.end(stage)
        scheduled, acked = dict(stage.scheduled), dict(stage.acked)
        there = _there(survivor)
    lost = {id_ for id_ in scheduled if id_ not in there and id_ not in stage.tried}
    again = {id_ for id_ in acked if id_ in there}
    since = [scheduled[id_] for id_ in lost] + [acked[id_] for id_ in again]
    return Loss(
        case,
        len(scheduled),
        frozenset(lost),
        frozenset(id_ for id_ in lost if scheduled[id_] < stage.safe_until),
        len(acked),
        frozenset(again),
        max(0.0, stage.ended - min(since, default=stage.ended)),
    )


@contextmanager
def _stage(case: Case, directory: Path, flavour: str) -> Iterator[Stage]:
    server = cast(
        "Mains", Mains.start(flavour, dir=directory / "primary", config=case.config, config_get=True)
    )
    replica = RedisServer.start(flavour, dir=directory / "replica") if case.replicated else None
    try:
        if replica is not None:
            with server.client() as redis:
                redis.config_set("repl-diskless-sync-delay", 0)
            replica.follow(server)
        yield Stage(server, replica)
    finally:
        for each in filter(None, (server, replica)):
            each.stop()


@contextmanager
def _load(stage: Stage, durability: Durability | None) -> Iterator[None]:
    """Schedule and handle until the block ends; errors end a thread, for there is no Redis any more."""
    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(_schedule, stage, durability), pool.submit(_handle, stage)]
        try:
            yield
        finally:
            stage.stop.set()
        for thread in threads:
            thread.result()


def _schedule(stage: Stage, durability: Durability | None) -> None:
    """Twenty at a time; every other one falls due at once."""
    address = Address.from_url(stage.server.url)
    nth = 0
    with SyncClient(address, queue=QUEUE, durability=durability) as client:
        while not stage.stop.is_set():
            tasks = [
                NewTask(None, delay_ms=each % 2 * 3_600_000, task_id=f"t{nth + each}") for each in range(20)
            ]
            nth += len(tasks)
            stage.calls += 1
            try:
                client.schedule_many(tasks)
            except DelayQError:
                continue  # refused, in doubt or gone: nothing was confirmed
            now = time.monotonic()
            stage.scheduled.update({f"t{n}": now for n in range(nth - len(tasks), nth)})


def _handle(stage: Stage) -> None:
    commands = Commands(QUEUE)
    with closing(SyncConnection(Address.from_url(stage.server.url))) as connection:
        while not stage.stop.is_set():
            try:
                [claimed] = connection.run([commands.claim(0, 20, 60_000)])
                leases = claimed.leases
                stage.tried.update(lease.task.id for lease in leases)
                connection.run([commands.ack(0, [lease.member for lease in leases])])
            except DelayQError:
                continue
            now = time.monotonic()
            stage.acked.update({lease.task.id: now for lease in leases})


def _there(server: RedisServer) -> set[str]:
    with server.client() as redis:
        return set(redis.hkeys(Commands(QUEUE).shards[0].tasks))


# endings: each returns the server that is there afterwards


def killed(stage: Stage) -> RedisServer:
    """SIGKILL. What it had written is with the kernel, which lives on."""
    stage.wait(1.0)
    stage.kill()
    stage.server.restart()
    return stage.server


def cut_off(stage: Stage) -> RedisServer:
    """The power fails: what no fsync covers is gone."""
    stage.wait(1.0)
    stage.kill()
    stage.safe_until = stage.server.cut_power()
    stage.server.restart()
    return stage.server


def killed_after_save(stage: Stage) -> RedisServer:
    """SIGKILL, with a snapshot taken in the middle of the load and nothing else."""
    stage.wait(0.5)
    stage.safe_until = time.monotonic()
    with stage.server.client() as redis:
        redis.bgsave()
        until(lambda: redis.info("persistence")["rdb_bgsave_in_progress"] == 0, "a snapshot")
    stage.wait(0.5)
    stage.kill()
    stage.server.restart()
    return stage.server


def failed_over(stage: Stage) -> RedisServer:
    """The replica loses its primary; then the primary dies, and the replica, which has not heard of the rest, leads.

    Not paused: the kernel would go on receiving for it, and it would catch up before it leads.
    """
    if stage.replica is None:
        raise ValueError("a fail-over takes a replica")
    stage.wait(0.5)
    with stage.replica.client() as redis:
        redis.replicaof("127.0.0.1", 1)
        stage.wait(0.5, acked=0, calls=2)  # where a replica has to confirm, nothing is any more
        stage.kill()
        redis.replicaof("NO", "ONE")
    return stage.replica


KILLED: Final = "killed (SIGKILL)"
CUT: Final = "power cut"
CASES: Final = {
    "always killed": Case("`appendfsync always`", KILLED, killed, LOG | {"appendfsync": "always"}),
    "everysec killed": Case("`appendfsync everysec`", KILLED, killed, LOG | {"appendfsync": "everysec"}),
    "no killed": Case("`appendfsync no`", KILLED, killed, LOG | {"appendfsync": "no"}),
    "snapshot killed": Case("snapshots only", KILLED, killed_after_save, {"save": "3600 1000000"}),
    "always cut": Case("`appendfsync always`", CUT, cut_off, LOG | {"appendfsync": "always"}),
    "everysec cut": Case("`appendfsync everysec`", CUT, cut_off, LOG | {"appendfsync": "everysec"}),
    "no cut": Case("`appendfsync no`", CUT, cut_off, LOG | {"appendfsync": "no"}),
    "fsynced cut": Case(
        "`always`, `durability.confirm: Fsynced` (Valkey)",
        CUT,
        cut_off,
        LOG | {"appendfsync": "always"},
        flavour=CONFIRMING,
        durability=Durability("Fsynced", timeout_ms=30_000),
    ),
    "failed over": Case("a replica that lost its primary", "fail-over", failed_over, LOG, replicated=True),
    "replicated failed over": Case(
        "the same, `durability.confirm: Replicated`",
        "fail-over",
        failed_over,
        LOG,
        durability=Durability("Replicated", timeout_ms=1000),
        replicated=True,
    ),
}
"""Every way that is measured, by a name."""

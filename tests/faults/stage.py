"""One cell's servers and processes, and what faults may do to them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from delayq.guards.sql.table import ddl

from tests.faults.bank import Bank
from tests.faults.crew import LEASE_SECONDS, Crew, spec_of
from tests.faults.machine import LOOPBACK, Machine
from tests.process.fleet import until
from tests.processes import Gone
from tests.servers import Clock, RedisServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.guards import GuardKind
    from tests.faults.lane import Lane, ReachablePostgres
    from tests.faults.machine import Cable, Far
    from tests.process.fleet import Role
    from tests.processes import Process

TAKE_OVER_SECONDS: Final = 3.0 * LEASE_SECONDS
"""Another worker has begun the tasks by then, unless their guard keeps it from them."""
HIT_LOCKS: Final = 1
"""How many of a guard's own servers a fault of Redis hits: what a majority must be able to bear."""
CLOCK_PATIENCE: Final = {True: "20", False: "0.3"}
"""How long a handler waits for Redis to tell the time, by whether the fault moves Redis' clock."""


class Stage:
    """Use as `with`; `victim` is the worker that is hit, `other` the one that goes on."""

    def __init__(self, lane: Lane, guard: GuardKind, fault: Fault, directory: Path) -> None:
        """Start the servers and open the bank; no process runs yet."""
        self.lane, self.guard, self.fault, self._dir = lane, guard, fault, directory
        self._open = ExitStack()
        self._remote = lane.remote() if fault.place == "apart" else None
        self.redis = self._start_redis("redis", queue=True)
        self.locks = [
            self._start_redis(f"lock-{nth}", hit=nth < HIT_LOCKS) for nth in range(guard.lock_servers)
        ]
        self.database = lane.new_database()
        self.bank = Bank(lane.database_url(self.database))
        self.crew = Crew(self.redis, directory, "transfers", spec_of(guard))
        self._open.callback(self.crew.write_logs)
        self._open.callback(self.crew.kill_all)
        self._clock = Clock(directory / "worker-clock", self.redis.port)
        self.stepped_back_ms: int | None = None
        """When Redis' clock was set back, by what it showed then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start_redis(self, name: str, *, queue: bool = False, hit: bool = True) -> RedisServer:
        """The queue's keeps an append-only file; those of a lock keep nothing."""
        config = {"appendfsync": "always"}
        if self._remote is not None:
            config |= {"bind": f"{LOOPBACK} {self._remote.cables['redis'].here}", "protected-mode": "no"}
        server = RedisServer.start(
            self.lane.flavour,
            dir=self._dir / name,
            appendonly=queue,
            movable_clock=hit and self.fault.moves_redis_clock,
            config=config,
        )
        self._open.callback(server.stop)
        return server

    def set_up(self, hits: int) -> None:
        """Open the bank and start the processes; the other worker stands still until the victim has its tasks."""
        self.bank.open(ddl("postgresql") if self.guard.sql else ())
        here = Machine()
        for role in ("scanner", "reaper"):
            self._start(here, role)
        self.victim = self._start(
            self._victims_machine(), "worker", FAULTS_POINT=self.fault.holds, FAULTS_HITS=str(hits)
        )
        self.other = self._start(here, "worker")
        self.crew.wait_started()
        self.other.pause()

    def _victims_machine(self) -> Machine:
        if self.fault.place == "own clock":
            self._clock.write()
            return Machine(environment=self._clock.environment())
        return Machine() if self._remote is None else self._remote.machine

    def _start(self, machine: Machine, role: Role, **environment: str) -> Process:
        database = self.lane.database_url(self.database, machine.database)
        urls = "\n".join(f"redis://{machine.redis}:{server.port}/0" for server in self.locks)
        secrets = self.crew.write_secrets(f"secrets-{len(self.crew.processes)}", url=database, urls=urls)
        return self.crew.start_on(
            machine,
            role,
            DELAYQ_SECRETS_DIR=str(secrets),
            FAULTS_DATABASE=database,
            LEDGER_CLOCK_PATIENCE=CLOCK_PATIENCE[self.fault.moves_redis_clock],
            **environment,
        )

    @property
    def postgres(self) -> ReachablePostgres:
        return self.lane.postgres

    def some_redis(self) -> list[RedisServer]:
        """The queue's own and, where the guard has servers of its own, some of those."""
        return [self.redis, *self.locks[:HIT_LOCKS]]

    def cable(self, far: Far) -> Cable:
        assert self._remote is not None, "only a worker that is apart has cables"
        return self._remote.cables[far]

    def set_victims_clock(self, ms: int) -> None:
        self._clock.offset_ms = ms
        self._clock.write()

    def set_redis_clock(self, ms: int) -> None:
        if ms < 0:
            self.stepped_back_ms = self.redis.now_ms() + ms
        for server in self.some_redis():
            assert server.clock is not None, "the fault must say that it moves Redis' clock"
            server.clock.set_ms(ms)

    def held(self) -> set[str]:
        return set(self._held())

    def _held(self) -> list[str]:
        """A task may be there twice: on a slow machine its lease may run out already here."""
        return [entry.id for entry in self.crew.ledger() if entry.event == "held"]

    def wait_held(self, hits: int) -> None:
        """Until the victim has come to the point with as many tasks; then the other worker may go on, too."""
        until(
            lambda: len(self._held()) >= hits, f"{hits} tasks {self.fault.holds} their effect", timeout_s=60
        )
        self.other.resume()

    def wait_taken_over(self) -> None:
        """Until the other worker has begun what the victim holds, or evidently will not."""
        held = self.held()

        def begun() -> set[str]:
            return {entry.id for entry in self.crew.ledger() if entry.pid == self.other.pid}

        try:
            until(lambda: begun() >= held, "taken over", timeout_s=TAKE_OVER_SECONDS)
        except Gone:
            return  # the guard keeps them apart

    def release(self) -> None:
        """Let the victim's handlers go on from their point."""
        (self.crew.ledger_dir / "released").touch()

"""The processes of a run, and the faults of processes and of Redis, one after the other."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.forking import CONTEXT
from tests.histories.recorder import Recorder
from tests.histories.services import scan, work
from tests.histories.workload import Caller, Holder, Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path
    from random import Random
    from typing import Any

    from tests.histories.plan import Plan
    from tests.servers import RedisServer

ROLES: Final = {
    "clients": ("caller", "caller", "blocking", "holder", "holder"),
    "others": ("caller", "caller", "holder", "holder", "keeper"),
    "worker": ("worker",),
    "worker2": ("worker",),
    "scanner": ("scanner",),
}
"""What each process of a run does: 13 clients, workers and keepers, of which each has connections of its own."""
ACTORS: Final[dict[str, Callable[[Plan, str], Coroutine[Any, Any, None]]]] = {
    "caller": lambda plan, name: Caller(plan, name).run(),
    "blocking": lambda plan, name: Caller(plan, name, blocking=True).run(),
    "holder": lambda plan, name: Holder(plan, name).run(),
    "keeper": lambda plan, name: Keeper(plan, name).run(),
    "worker": work,
    "scanner": scan,
}
SKEW_MS: Final = 3_600_000  # of the clocks of half of the processes


async def act(plan: Plan, name: str, roles: tuple[str, ...]) -> None:
    """Everything that one process does."""
    await asyncio.gather(*(ACTORS[role](plan, f"{name}.{nth}") for nth, role in enumerate(roles)))


def process(plan: Plan, directory: Path, name: str, roles: tuple[str, ...]) -> None:
    """A process of its own, whose clock may be wrong."""
    logging.disable(logging.CRITICAL)
    random = plan.random(name)
    if random.random() < 0.5:
        right, skew = time.time, random.uniform(-SKEW_MS, SKEW_MS) / 1000
        time.time = lambda: right() + skew
    with Recorder(directory / f"{name}.jsonl").recording():
        asyncio.run(act(plan, name, roles))


@dataclass
class Fleet:
    """The processes of a run. One that was killed is started again under a new name."""

    plan: Plan
    directory: Path
    running: dict[str, ForkServerProcess] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    crashed: list[str] = field(default_factory=list)

    def start(self, role: str) -> None:
        name = f"{role}-{self.starts[role]}"
        self.starts[role] += 1
        arguments = (self.plan, self.directory, name, ROLES[role])
        child = CONTEXT.Process(target=process, args=arguments, daemon=True)
        child.start()
        self.running[role] = child

    def send(self, role: str, number: signal.Signals) -> None:
        child = self.running[role]
        if child.is_alive() and child.pid:
            os.kill(child.pid, number)

    def kill(self, role: str) -> None:
        self.send(role, signal.SIGKILL)
        self.running[role].join()
        self._note(role)
        self.start(role)

    def _note(self, role: str) -> None:
        """Only we end a process before its time."""
        code = self.running[role].exitcode
        self.crashed += [f"{role} ended with code {code}"] if code not in {0, -signal.SIGKILL} else []

    async def end(self) -> None:
        """Wait until each has seen that the run is over."""
        until = time.monotonic() + 5
        for role, child in self.running.items():
            await asyncio.to_thread(child.join, max(0.0, until - time.monotonic()))
            child.kill()
            child.join()
            self._note(role)


@dataclass
class Chaos:
    """Faults of processes and of Redis, one after the other."""

    server: RedisServer
    fleet: Fleet
    random: Random
    faults: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        faults = (self.kill, self.kill, self.pause, self.pause_redis, self.pause_redis, self.kill_redis)
        await asyncio.sleep(0.7)
        while not self.fleet.plan.over:
            fault = self.random.choice(faults)
            await fault()
            await asyncio.sleep(self.random.uniform(0.1, 0.9))

    async def kill(self) -> None:
        role = self.random.choice(list(ROLES))
        self.faults[f"{role.rstrip('2')}_killed"] += 1
        self.fleet.kill(role)

    async def pause(self) -> None:
        """Longer than a lease."""
        role = self.random.choice(list(ROLES))
        self.faults["process_paused"] += 1
        self.fleet.send(role, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(0.3, 1.3))
        self.fleet.send(role, signal.SIGCONT)

    async def pause_redis(self) -> None:
        self.faults["redis_paused"] += 1
        self.server.pause()
        await asyncio.sleep(self.random.uniform(0.1, 1.2))
        self.server.resume()

    async def kill_redis(self) -> None:
        self.faults["redis_killed"] += 1
        self.server.kill()
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        self.server.restart()

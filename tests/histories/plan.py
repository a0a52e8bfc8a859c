"""The plan of a run: a seed, and what is called how often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias

from delayq.client.encoding import stored_id
from delayq.connection import Address
from delayq.errors import DelayQError

from tests.histories.faults import CUTS
from tests.histories.recording import offset_ms

QUEUE: Final = "orders"
MAX_ATTEMPTS, MAX_CRASHES = 3, 2
TIMEOUT_SECONDS: Final = 0.5
INDEXES: Final = (
    *("tasks", "delayed", "retry", "suspect", "processing", "dlq", "parked"),
    *("attempts", "dlq_info", "followups", "deadlines", "tags", "cancelling"),
)
KNOWN: Final = "known"


@dataclass(frozen=True)
class Plan:
    """What is called how often. Tasks change every `round_seconds`, so that histories stay short."""

    seed: int
    url: str
    began: float = field(default_factory=time.monotonic)
    ends: float = 0.0  # monotonic seconds
    ahead_ms: float = field(default_factory=offset_ms)
    round_seconds: float = 2.0
    tasks: int = 5  # in a round
    pause_seconds: float = 0.02  # the longest between two calls of one actor
    verbs: tuple[str, ...] = ()  # of clients, instead of all
    settles: tuple[str, ...] = ()  # of leases, instead of all
    keeps: tuple[str, ...] = ()  # of scanners, instead of all
    slots: tuple[int, ...] = ()  # of tasks, instead of all
    enough: Callable[[], bool] | None = None  # whether the run is over before its time
    cuts: float = 0.01  # share of requests whose connection fails
    cut_kinds: tuple[str, ...] = CUTS
    lease_ms: tuple[int, int] = (300, 900)
    timeout_seconds: float = TIMEOUT_SECONDS  # until a call gives up

    def random(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends or (self.enough is not None and self.enough())

    def pick(self, random: Random) -> tuple[str, str | None, int]:
        """A task of this round, or rarely of the one before: its stored ID, its kind, and its number in its round."""
        now = int((time.monotonic() - self.began) / self.round_seconds)
        slot = random.choice(self.slots or range(self.tasks))
        task_id = f"t{max(0, now - (random.random() < 0.1))}-{slot}"
        kind = {0: KNOWN, 1: f"k-{task_id}", 2: f"k-{task_id}"}.get(slot % 5)
        return stored_id(task_id, kind), kind, slot

    @property
    def address(self) -> Address:
        return replace(
            Address.from_url(self.url), timeout_seconds=self.timeout_seconds, health_check_seconds=0.5
        )


Act: TypeAlias = Callable[[], Awaitable[object]]


async def acting(plan: Plan, random: Random, act: Act) -> None:
    """Act until the run is over. What fails was recorded."""
    while not plan.over:
        with suppress(DelayQError):
            await act()
        await asyncio.sleep(random.random() * plan.pause_seconds)

"""Where a handler waits for the harness to strike: before its effect, during or after it.

Runs inside the workers. Only the worker that will be hit waits, and only with its first few tasks; the others pass.
What handlers say goes to one file per process, opened with O_APPEND, so a SIGKILL takes nothing back.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

Point = Literal["before", "during", "after"]

LEDGER = Path(os.environ["LEDGER"])
RELEASED = LEDGER / "released"
LOOK_SECONDS = 0.01


class RedisTime:
    """The time by Redis' clock; while Redis does not answer, by its last answer and this machine's monotonic clock.

    Asks each time, for some faults move Redis' clock; with those, Redis always answers and `patience_s` is long.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        self._redis = AsyncRedis.from_url(
            url, socket_timeout=patience_s, socket_connect_timeout=patience_s, retry=None
        )
        with Redis.from_url(url, socket_timeout=20) as redis:
            asked_at = _monotonic_ms()
            self._ahead_ms = _ms(*redis.time()) - asked_at

    async def now_ms(self) -> int:
        """By the clock itself; without an answer, later than that by at most the last answer's round trip."""
        asked_at = _monotonic_ms()
        with suppress(RedisError, OSError):
            now_ms = _ms(*await self._redis.time())
            self._ahead_ms = now_ms - asked_at
            return now_ms
        return _monotonic_ms() + self._ahead_ms


def _ms(seconds: int, micros: int) -> int:
    return seconds * 1000 + micros // 1000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_file = os.open(LEDGER / f"{os.getpid()}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
_time = RedisTime(os.environ["LEDGER_CLOCK"], float(os.environ["LEDGER_CLOCK_PATIENCE"]))
_point, _left = os.environ.get("FAULTS_POINT"), int(os.environ.get("FAULTS_HITS", "0"))


async def note(event: str, task: Task) -> None:
    """One line as tests/process/fleet.py reads it; the time is Redis' own."""
    now_ms = await _time.now_ms()
    line = f"{event} {task.id} {task.token} {task.attempt} {task.due_ms} {now_ms} {os.getpid()}\n"
    os.write(_file, line.encode())


async def reach(point: Point, task: Task) -> None:
    """Announce the point and wait there, if this is what the harness waits for."""
    global _left  # noqa: PLW0603  one process, one count
    if point != _point or not _left or RELEASED.exists():
        return
    _left -= 1
    await note("held", task)
    while not RELEASED.exists():  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(LOOK_SECONDS)

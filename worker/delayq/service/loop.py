"""The loop of every service: sleeps, adds jitter, catches errors and stops. A service only has a step()."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from delayq.errors import DelayQError, Outage, Unavailable
from delayq.service.resources import is_lack

if TYPE_CHECKING:
    from delayq.protocol.alarm import Alarm
    from delayq.service.counters import ProcessCounters
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0
STUCK_AFTER_SECONDS = 60.0
HANGS_SECONDS = 5.0  # a step that takes longer counts as an outage of Redis


class Service(Protocol):
    """A repeated action."""

    name: str
    blocks: bool  # a step may wait for half a minute, so readiness ignores it
    alarm: Alarm  # ends the pause between two steps

    async def step(self) -> float:
        """Do the work that is due; returns the seconds until the next step (0: at once)."""


@runtime_checkable
class Sweeping(Service, Protocol):
    """A service that repeats passes over the whole queue."""

    passes: int  # completed passes


@runtime_checkable
class Waiting(Service, Protocol):
    """A service that may wait for something besides Redis."""

    waits_for: str  # not ready until it is empty


class Loop:
    """Runs a service until stopped. Failures are logged, counted and retried with exponential backoff."""

    def __init__(
        self,
        service: Service,
        counters: ProcessCounters,
        group: ShardGroup | None = None,
        *,
        part: bool = False,
    ) -> None:
        """Count errors in `counters`. `group` is the served shard group, None: all; `part`: only a part of it."""
        self.part = part
        self.service, self._counters, self.group = service, counters, group
        self.last_success: float | None = None  # monotonic seconds
        self.served = False  # whether Redis served the last step; other errors do not change it
        self.outage: Outage | None = None  # the reason if not served; None before the first step has ended
        self._due = time.monotonic()  # scheduled start of the current or next step
        self._failures = 0
        self._lacking_since: float | None = None  # monotonic seconds
        self._stopping = False

    @property
    def queue(self) -> str:
        """Name of the queue that the service serves."""
        return self._counters.queue

    @property
    def waits_for(self) -> str:
        """What its service waits for besides Redis; empty for most."""
        return self.service.waits_for if isinstance(self.service, Waiting) else ""

    @property
    def stuck_seconds(self) -> float:
        """Seconds since the scheduled start of the current or next step."""
        return max(0.0, time.monotonic() - self._due)

    @property
    def lacking_seconds(self) -> float:
        """For how long every step has failed because this process lacks memory or another resource."""
        return 0.0 if self._lacking_since is None else time.monotonic() - self._lacking_since

    @property
    def down(self) -> Outage | None:
        """Why Redis does not serve: the last call failed, or hangs. None if it serves, or if no call has ended."""
        if self.stuck_seconds >= HANGS_SECONDS:
            return "timeout"
        return None if self.served else self.outage

    def ready(self, within_seconds: float) -> bool:
        """Whether the last step succeeded, and the next one is not delayed for longer than `within_seconds`.

        A service that waits for something is not. One that blocks is: after an outage its first success may take half
        a minute.
        """
        if self.waits_for:
            return False
        if self.service.blocks:
            return True
        return not self._failures and self.last_success is not None and self.stuck_seconds < within_seconds

    async def run(self) -> None:
        """Step until stop()."""
        while not self._stopping:
            self._due = time.monotonic()
            try:
                pause = await self._guarded_step()
            except MemoryError:  # while the error of a step was logged
                pause = LONGEST_PAUSE_SECONDS
            if self._stopping:
                break
            self._due = time.monotonic() + pause
            if pause > 0:
                await self._wait(pause)
            else:
                await asyncio.sleep(0)

    async def _wait(self, seconds: float) -> None:
        try:
            await self.service.alarm.wait(seconds)
        except MemoryError:
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Stop after the current step."""
        self._stopping = True
        self.service.alarm.ring()

    async def _guarded_step(self) -> float:
        try:
            pause = await self.service.step()
        except Unavailable as error:
            self._lacking_since = None
            self._counters.redis_errors += 1
            self.served, self.outage = False, error.outage
            return self._failed("redis_unavailable", error, trace=False)
        except Exception as error:  # noqa: BLE001 -- a loop survives every error of a step
            if not is_lack(error):
                self._lacking_since = None
            elif self._lacking_since is None:
                self._lacking_since = time.monotonic()
            if isinstance(error, DelayQError):  # Redis rejected a call
                self.served, self.outage = False, error.outage
            return self._failed("step_failed", error, trace=True)
        if self._failures:
            log.info(
                "loop_recovered",
                extra={"fields": {"loop": self.service.name, "after_failures": self._failures}},
            )
        self._failures, self._lacking_since = 0, None
        self.last_success, self.served = time.monotonic(), True
        return pause

    def _failed(self, event: str, error: Exception, *, trace: bool) -> float:
        self._counters.loop_errors[self.service.name] += 1
        fields = {"loop": self.service.name, "error": str(error), "failures": self._failures + 1}
        # Log the 1st, 2nd, 4th, 8th, … failure in a row, so that an outage does not flood the log.
        if self._failures & (self._failures + 1) == 0:
            log.warning(event, extra={"fields": fields}, exc_info=error if trace else None)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return float(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads load, keeps no secret

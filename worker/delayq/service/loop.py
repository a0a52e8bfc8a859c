"""The one place that sleeps, jitters, catches and stops. A service has a step(); nothing else in it waits for time."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from delayq.contract.metrics import Outage
    from delayq.protocol.alarm import Alarm
    from delayq.service.counters import ProcessCounters
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0
STUCK_AFTER_SECONDS = 60.0


class Service(Protocol):
    """Something that is done over and over."""

    name: str
    blocks: bool  # a step may wait for half a minute, so readiness does not depend on it
    alarm: Alarm  # cuts the pause between two steps short

    async def step(self) -> float:
        """Do what is to be done now; return for how many seconds nothing more will be (0: go on at once)."""


@runtime_checkable
class Sweeping(Service, Protocol):
    """A service that goes over everything there is, again and again."""

    passes: int  # completed so far: all that there was to do has been done


class Loop:
    """Runs a service until stopped. Failures are logged, counted and tried again, ever more slowly."""

    def __init__(
        self,
        service: Service,
        counters: ProcessCounters,
        group: ShardGroup | None = None,
        *,
        part: bool = False,
    ) -> None:
        """Count errors in `counters`. `group` is the shard group served, None: all; `part`: only a part of it."""
        self.part = part
        self.service, self._counters, self.group = service, counters, group
        self.last_success: float | None = None  # monotonic seconds
        self.served = False  # the last step that failed or succeeded because of Redis did succeed
        self.outage: Outage = "other"  # why not
        self._due = time.monotonic()  # when the current or next step should have begun
        self._failures = 0
        self._stopping = False

    @property
    def stuck_seconds(self) -> float:
        """How long the current step has been overdue or under way."""
        return max(0.0, time.monotonic() - self._due)

    def ready(self, within_seconds: float) -> bool:
        """Whether the last step succeeded, and the next is not long overdue.

        A service that blocks is not asked: after an outage it may wait for half a minute until its first success.
        """
        if self.service.blocks:
            return True
        return not self._failures and self.last_success is not None and self.stuck_seconds < within_seconds

    async def run(self) -> None:
        """Step until stop()."""
        while not self._stopping:
            self._due = time.monotonic()
            pause = await self._guarded_step()
            if self._stopping:
                break
            self._due = time.monotonic() + pause
            if pause > 0:
                await self.service.alarm.wait(pause)
            else:
                await asyncio.sleep(0)

    def stop(self) -> None:
        """Let the current step finish and begin no other."""
        self._stopping = True
        self.service.alarm.ring()

    async def _guarded_step(self) -> float:
        try:
            pause = await self.service.step()
        except Unavailable as error:
            self._counters.redis_errors += 1
            self.served, self.outage = False, error.outage
            return self._failed("redis_unavailable", error, trace=False)
        except Exception as error:  # noqa: BLE001 -- a loop outlives whatever one step runs into
            if isinstance(error, DelayQError):  # ours are refusals by Redis
                self.served, self.outage = False, "denied"
            return self._failed("step_failed", error, trace=True)
        if self._failures:
            log.info(
                "loop_recovered",
                extra={"fields": {"loop": self.service.name, "after_failures": self._failures}},
            )
        self._failures, self.last_success, self.served = 0, time.monotonic(), True
        return pause

    def _failed(self, event: str, error: Exception, *, trace: bool) -> float:
        self._counters.loop_errors[self.service.name] += 1
        fields = {"loop": self.service.name, "error": str(error), "failures": self._failures + 1}
        # The 1st, 2nd, 4th, 8th, … of a row of failures: an outage is told, not repeated every other second.
        if self._failures & (self._failures + 1) == 0:
            log.warning(event, extra={"fields": fields}, exc_info=error if trace else None)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return float(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads load, keeps no secret

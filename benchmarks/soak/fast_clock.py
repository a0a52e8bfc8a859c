"""Time that runs faster: a Redis and processes whose clocks, monotonic ones too, go many times as fast as ours.

libfaketime multiplies what clocks say and divides what sleeps, polls and timers wait for, so the processes
cannot detect it. Computing does not go faster: an hour in a second is 3,600 times the work per second, and
time-outs are as much shorter. Documents for it name long time-outs and leases.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import SERVERS, Clock, RedisServer

HERE = Path(__file__).parent
# Redis would do its housekeeping ten times in each second of a day that takes minutes.
QUIET = {"hz": "1", "dynamic-hz": "no"}


@dataclass(frozen=True)
class Pace:
    """How much faster, and since when: processes that are started later agree on what time it is."""

    factor: int
    began: float = field(default_factory=time.time)

    def environment(self) -> dict[str, str]:
        """For a process that is started now; libfaketime counts from its start."""
        ahead = (time.time() - self.began) * (self.factor - 1)
        return {
            "LD_PRELOAD": str(SERVERS / "libfaketime.so"),
            "FAKETIME": f"+{ahead:.3f} x{self.factor}",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "TZ": "UTC0",
            "PYTHONPATH": str(HERE),  # of soak_handlers
        }

    def passed(self) -> float:
        """Seconds gone by in there."""
        return (time.time() - self.began) * self.factor


class FastClock(Clock):
    """A server's clock at such a pace; it is not moved."""

    pace: Pace

    def write(self) -> None:
        """No file: the environment says it."""

    def environment(self) -> dict[str, str]:
        own = self.pace.environment()
        return own | {"LD_PRELOAD": f"{own['LD_PRELOAD']}:libc.so.6"}  # why libc: see Clock


def fast_server(flavour: str, directory: Path, pace: Pace) -> RedisServer:
    """Start a Redis at this pace, without persistence."""
    clock = FastClock(directory / "clock", 0)
    clock.pace = pace
    return RedisServer.start(flavour, dir=directory, movable_clock=clock, config=QUIET)

"""A queue's processes at clocks that run faster, and what is looked at before and after: keys, and memory."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from benchmarks.soak.day import SPEC, Day, held, resident_kib
from benchmarks.soak.fast_clock import Pace, fast_server
from tests.process.fleet import Fleet, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.processes import Process

ROLES = ("scanner", "worker", "reaper")
MINUTE = 60.0


@dataclass(frozen=True)
class Look:
    """One look at everything, while nothing but the stock is there."""

    hours: float
    keys: dict[str, int]  # bytes, by name, of all shards
    number: int  # of keys
    used: int  # bytes, all of Redis
    resident: dict[str, int]  # KiB, by process
    commands: int


@dataclass
class Stage:
    """Where a day is played."""

    fleet: Fleet
    pace: Pace
    day: Day
    processes: dict[str, Process]
    keys: list[dict[str, int]] = field(default_factory=list)  # bytes, at each look
    course: list[dict[str, float]] = field(default_factory=list)  # of resident memory, hour by hour

    def look(self) -> Look:
        with self.fleet.server.client() as redis:
            info: Any = redis.info()
            keys = held(redis)
            self.keys.append(keys)
            number = int(redis.dbsize())
        return Look(
            self.pace.passed() / 3600,
            keys,
            number,
            int(info["used_memory"]),
            {name: resident_kib(process) for name, process in self.processes.items()},
            int(info["total_commands_processed"]),
        )

    def until(self, seconds: float) -> None:
        """Sleep until so much time has passed in there."""
        while (left := seconds - self.pace.passed()) > 0:
            time.sleep(min(0.05, left / self.pace.factor))

    def scrape(self) -> None:
        """As Prometheus does; an answer that is late is no matter."""
        for role in ("scanner", "worker"):
            with suppress(OSError), urlopen(url_of(self.processes[role], "metrics"), timeout=10) as answer:  # noqa: S310 -- our own process
                answer.read()

    def note(self) -> None:
        """Record the size of every process."""
        sizes = {name: resident_kib(process) for name, process in self.processes.items()}
        self.course.append({"hours": round(self.pace.passed() / 3600, 2), **sizes})

    def said(self) -> Counter[str]:
        """Count what the processes warned of, by event."""
        return Counter(record["event"] for record in self._warnings())

    def failed(self) -> list[dict[str, Any]]:
        """What ought not to be: a step that failed for another reason than Redis."""
        return [record for record in self._warnings() if record["event"] == "step_failed"]

    def _warnings(self) -> Iterator[dict[str, Any]]:
        for role in ROLES:
            for line in list(self.processes[role].lines):
                with suppress(ValueError):
                    record = json.loads(line)
                    if record["level"] != "info":
                        yield record


@contextmanager
def stage(directory: Path, flavour: str, factor: int, per_minute: int) -> Iterator[Stage]:
    """Start a server, a scanner, a worker and a reaper at this pace."""
    pace = Pace(factor)
    server = fast_server(flavour, directory / "redis", pace)
    standalone = {"standalone": {"host": "127.0.0.1", "port": server.port}}
    fleet = Fleet(
        server, directory, "soak", SPEC | {"redis": {**SPEC["redis"], **standalone}}, pace.environment()
    )
    try:
        started = fleet.start_all("scanner", "worker", "reaper")
        processes = dict(zip(ROLES, started, strict=True)) | {"Redis": server.process}
        with fleet.client() as client:
            yield Stage(fleet, pace, Day(fleet, client, per_minute), processes)
    finally:
        fleet.kill_all()
        server.kill()

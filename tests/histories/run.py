"""One run: processes that call, faults, a drain, and the verdict about every history."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.forking import forking
from tests.histories.faults import Proxy
from tests.histories.fleet import ROLES, Chaos, Fleet, act
from tests.histories.plan import MAX_CRASHES, Plan
from tests.histories.recorder import Recorder
from tests.histories.recording import Recording, offset_ms
from tests.histories.report import Report, judged, miscounted
from tests.histories.workload import Holder
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from delayq.protocol.results import Counts

DRAIN_SECONDS: Final = 60.0
CALLS, LONGEST_SECONDS = 1000, 20.0


@contextmanager
def redis(directory: Path, flavour: str = PREFERRED, *, appendonly: bool = True) -> Iterator[RedisServer]:
    """A server that forgets nothing."""
    config = {"appendfsync": "always"}
    server = RedisServer.start(flavour, dir=directory / "redis", appendonly=appendonly, config=config)
    try:
        yield server
    finally:
        server.resume()
        server.stop()


def play(plan: Plan, server: RedisServer, directory: Path, seconds: float) -> Report:
    """Run everything for some seconds, drain, and judge."""
    before = offset_ms()
    with forking("tests.histories.fleet"):
        faults, crashed = asyncio.run(_together(plan, server, directory, seconds))
    report = verdict(replace(plan, url=server.url, timeout_seconds=DRAIN_SECONDS), directory, before, faults)
    report.violations += crashed
    return report


async def _together(
    plan: Plan, server: RedisServer, directory: Path, seconds: float
) -> tuple[Counter[str], list[str]]:
    async with _through_a_proxy(plan, server, seconds) as (own, proxy):
        fleet = Fleet(own, directory)
        chaos = Chaos(server, fleet, own.random("chaos"))
        for role in ROLES:
            fleet.start(role)
        await chaos.run()
        await fleet.end()
    return proxy.faults + chaos.faults, fleet.crashed


def play_alone(plan: Plan, server: RedisServer, directory: Path, roles: tuple[str, ...]) -> Report:
    """Make some CALLS in this process, without faults of processes, to find a certain defect."""
    before = offset_ms()
    faults = asyncio.run(_alone(plan, server, directory, roles))
    found = judged(Recording.read(directory, before), faults)
    return verdict(replace(plan, url=server.url), directory, before, faults) if found.clean else found


async def _alone(plan: Plan, server: RedisServer, directory: Path, roles: tuple[str, ...]) -> Counter[str]:
    async with _through_a_proxy(plan, server, LONGEST_SECONDS) as (own, proxy):
        with Recorder(directory / "alone.jsonl").recording() as recorder:
            await act(replace(own, enough=lambda: recorder.count > CALLS), "alone", roles)
    return proxy.faults


@asynccontextmanager
async def _through_a_proxy(
    plan: Plan, server: RedisServer, seconds: float
) -> AsyncIterator[tuple[Plan, Proxy]]:
    """The plan of a run that begins now and goes through a proxy, which ends after it."""
    proxy = Proxy(server, plan.random("proxy"), plan.cuts, plan.cut_kinds)
    url, now = await proxy.open(), time.monotonic()
    try:
        yield replace(plan, url=url, began=now, ends=now + seconds), proxy
    finally:
        await proxy.close()


def verdict(plan: Plan, directory: Path, before: float, faults: Counter[str]) -> Report:
    """Drain, and judge what was recorded."""
    ids = set(Recording.read(directory, before).histories())
    counts = asyncio.run(drain(plan, directory, ids))
    recording, left = Recording.read(directory, before), _left(counts)
    report = judged(recording, faults, moved_ms=abs(offset_ms() - before))
    report.violations += [f"{left} tasks neither end nor die"] if left else []
    report.violations += miscounted(recording, counts.stats)
    return report


async def drain(plan: Plan, directory: Path, ids: set[str]) -> Counts:
    """End what still waits, without faults, and look at every task once more. Returns what is left."""
    with Recorder(directory / "drain.jsonl").recording():
        holder = Holder(plan, "drain")
        one, commands = holder.connection.one, holder.commands
        until = time.monotonic() + DRAIN_SECONDS
        while _left(counts := await one(commands.counts(0))) and time.monotonic() < until:
            await one(commands.unpark(0, None))
            await one(commands.reclaim(0, max_crashes=MAX_CRASHES))
            await one(commands.expire(0))
            for verb in (commands.isolate, commands.claim):
                claimed = await one(verb(0, 100, 1000))
                if claimed.leases:
                    await one(commands.ack(0, [lease.member for lease in claimed.leases]))
            await asyncio.sleep(0.05)
        for task_id in sorted(ids):
            await one(commands.get(task_id))
        await holder.connection.close()
    return counts


def _left(counts: Counts) -> int:
    return counts.waiting + counts.in_flight + counts.parked

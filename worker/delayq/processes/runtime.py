"""What scanner, worker, reaper and eraser processes have in common: signals, probes, exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from delayq import guards, handlers
from delayq.connection import Address, AsyncConnection
from delayq.handlers import forked_children
from delayq.protocol.commands import Broker
from delayq.protocol.due_histogram import ALWAYS
from delayq.reaper.eraser import Eraser
from delayq.reaper.guard_retention import Ledger
from delayq.reaper.reaper import Reaper
from delayq.recovery import checks
from delayq.recovery.recovery import Recovery
from delayq.resharding.coordinator import Wish
from delayq.scanner.exporter import Scrape
from delayq.scanner.scanner import Scanner
from delayq.service import metrics
from delayq.service.loop import STUCK_AFTER_SECONDS
from delayq.service.probes import Probes
from delayq.service.scrape_cache import Recent
from delayq.service.shutdown import EXIT_SECONDS, end_within, leave, run
from delayq.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.protocol.due_histogram import Horizons
    from delayq.service.loop import Loop

    Families = Callable[[Horizons], Awaitable[Iterable[metrics.Family]]]

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0  # for a process that runs no handlers to stop, besides what it asks Redis


class Process(Protocol):
    """Scanner, Worker, Reaper or Eraser."""

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Work until `stop`; a second signal sets `hurry`."""


@dataclass(frozen=True)
class Setting:
    """What a process is started with."""

    queue: DelayQueue
    address: Address
    secrets_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    horizons_port: int | None = None
    """Where a scanner answers the horizons that it is asked for; None: nowhere."""

    @cached_property
    def broker(self) -> Broker:
        """The queue's verbs: one for all parts of a process, which have to go by the same layout."""
        spec = self.queue.spec
        prefix, limits = spec.redis.key_prefix, spec.limits
        return Broker(self.queue.queue, prefix=prefix, shards=spec.shards, limits=limits)


def run_worker(setting: Setting) -> None:
    """Run a worker until SIGTERM or SIGINT; HandlerSetupError before it starts."""
    run(_worker(setting))


def run_scanner(setting: Setting) -> None:
    """Run a scanner until SIGTERM or SIGINT."""
    run(_scanner(setting))


def run_reaper(setting: Setting, seconds: float | None) -> None:
    """Run a reaper until SIGTERM or SIGINT, or for some seconds: a CronJob's minute."""
    run(_reaper(setting, seconds))


def run_eraser(setting: Setting, patience_seconds: float) -> None:
    """Run until nothing is left of the queue; DelayQError says what kept it from that."""
    run(_eraser(setting, patience_seconds))


async def _worker(setting: Setting) -> None:
    handler = handlers.build(setting.queue, secrets_dir=setting.secrets_dir)
    guard = guards.build(
        setting.queue, setting.address, secrets_dir=setting.secrets_dir, apart=not handler.joins
    )
    call = handler.call if guard is None else handler.under(guard)
    await handler.start()
    try:
        worker = Worker(setting.queue.spec, setting.broker, setting.address, call, guard=guard)

        async def families(_horizons: Horizons) -> Iterable[metrics.Family]:
            worker.tally.busy = worker.slots.busy
            return metrics.worker_families(worker.tally)

        await _serve("worker", worker, setting, families, stop_seconds=worker.stop_seconds)
    finally:
        await handler.close()
        if guard is not None:
            await guard.close()
    if worker.slots.busy:
        leave()


async def _scanner(setting: Setting) -> None:
    # Containers in their host's network share its name, and each has a process 1.
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    connection = AsyncConnection(setting.address)
    async with _recovery(setting) as recovery:
        scanner = Scanner(
            *(setting.queue.spec, setting.broker, setting.address),
            owner=owner,
            recovery=recovery,
            wish=Wish.of(setting.queue),
        )
        scrape = Scrape(scanner, setting.broker, connection, setting.queue.spec.delivery)
        try:
            await _serve("scanner", scanner, setting, _shared(scrape))
        finally:
            await connection.close()


def _shared(scrape: Scrape) -> Families:
    """Answer scrapes that ask for nothing in particular together: any pod may ask, and each costs Redis."""
    recent = Recent(lambda: _listed(scrape))

    async def families(horizons: Horizons) -> Iterable[metrics.Family]:
        return await (recent.get() if horizons is ALWAYS else scrape.families(horizons))

    return families


async def _listed(scrape: Scrape) -> list[metrics.Family]:
    return list(await scrape.families(ALWAYS))


async def _reaper(setting: Setting, seconds: float | None) -> None:
    spec, broker = setting.queue.spec, setting.broker
    guard: object = None
    if spec.guard is not None and spec.guard.sql is not None:
        guard = guards.build(setting.queue, setting.address, secrets_dir=setting.secrets_dir, apart=True)
    ledger = guard if isinstance(guard, Ledger) else None
    async with _recovery(setting) as recovery:
        reaper = Reaper(spec, broker, setting.address, recovery=recovery, ledger=ledger)

        async def families(_horizons: Horizons) -> Iterable[metrics.Family]:
            return metrics.process_families(reaper.tally)

        try:
            await _serve("reaper", reaper, setting, families, seconds=seconds)
        finally:
            if ledger is not None:
                await ledger.close()


@asynccontextmanager
async def _recovery(setting: Setting) -> AsyncIterator[Recovery | None]:
    """What asks the document's check, if it names one; InvalidDocument before anything runs."""
    check = checks.build(setting.queue, setting.address, secrets_dir=setting.secrets_dir)
    if check is None:
        yield None
        return
    await check.start()
    recovery = Recovery(setting.broker, setting.address, setting.queue.spec, check)
    try:
        yield recovery
    finally:
        await check.close()
    if recovery.hangs:
        leave()


async def _eraser(setting: Setting, patience_seconds: float) -> None:
    eraser = Eraser(setting.broker, setting.address, patience_seconds=patience_seconds)

    async def families(_horizons: Horizons) -> Iterable[metrics.Family]:
        return metrics.eraser_families(eraser.tally, eraser.erase.shards)

    await _serve("eraser", eraser, setting, families)


async def _serve(
    name: str,
    process: Process,
    setting: Setting,
    families: Families,
    *,
    seconds: float | None = None,
    stop_seconds: float = STOP_SECONDS,
) -> None:
    """Run a process for `seconds`, or until it is told to stop, which may take `stop_seconds` and three time-outs."""
    async with _signals() as (stop, hurry):
        # No restart helps against a Redis that hangs: a step may wait for a batch before its own, and then for itself.
        patience = max(STUCK_AFTER_SECONDS, 4 * setting.address.timeout_seconds)
        probes = Probes(process, families, patience)
        runner, port = await probes.serve(setting.host, setting.port)
        runners = [runner]
        fields = {
            "process": name,
            "queue": setting.queue.queue,
            "redis": setting.address.where,
            "port": port,
            "pid": os.getpid(),
        }
        if setting.horizons_port is not None:
            runner, fields["horizons_port"] = await probes.serve_horizons(setting.host, setting.horizons_port)
            runners.append(runner)
        log.info("started", extra={"fields": fields})
        forked_children.watch()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        bounded = asyncio.create_task(_bounded(stop, stop_seconds + 3 * setting.address.timeout_seconds))
        try:
            await process.run(stop, hurry)
        finally:
            bounded.cancel()
            for runner in runners:
                await runner.cleanup()
            log.info("stopped", extra={"fields": {"process": name}})


async def _bounded(stop: asyncio.Event, seconds: float) -> None:
    await stop.wait()
    end_within(seconds + EXIT_SECONDS, 1)


@asynccontextmanager
async def _signals() -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """The first SIGTERM or SIGINT asks to stop, the second to hurry."""
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    try:
        yield stop, hurry
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

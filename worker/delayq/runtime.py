"""What scanner, worker, reaper and eraser processes have in common: signals, probes, exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import uvloop

from delayq import checks, guards, handlers, metrics
from delayq.broker import Broker
from delayq.connection import Address, AsyncConnection
from delayq.eraser import Eraser
from delayq.loop import STUCK_AFTER_SECONDS
from delayq.probes import Probes
from delayq.prune import Ledger
from delayq.reaper import Reaper
from delayq.recovery import Recovery
from delayq.reshard import Wish
from delayq.scanner import Scanner
from delayq.scrape import Scrape
from delayq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.horizons import Horizons
    from delayq.loop import Loop

log = logging.getLogger(__name__)


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

    @cached_property
    def broker(self) -> Broker:
        """The queue's verbs: one for all parts of a process, which have to go by the same layout."""
        spec = self.queue.spec
        prefix, limits = spec.redis.key_prefix, spec.limits
        return Broker(self.queue.queue, prefix=prefix, shards=spec.shards, limits=limits)


def run_worker(setting: Setting) -> None:
    """Run a worker until SIGTERM or SIGINT; HandlerSetupError before it starts."""
    uvloop.run(_worker(setting))


def run_scanner(setting: Setting) -> None:
    """Run a scanner until SIGTERM or SIGINT."""
    uvloop.run(_scanner(setting))


def run_reaper(setting: Setting, seconds: float | None) -> None:
    """Run a reaper until SIGTERM or SIGINT, or for some seconds: a CronJob's minute."""
    uvloop.run(_reaper(setting, seconds))


def run_eraser(setting: Setting, patience_seconds: float) -> None:
    """Run until nothing is left of the queue; DelayQError says what kept it from that."""
    uvloop.run(_eraser(setting, patience_seconds))


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
            worker.tally.busy = len(worker.slots.running)
            return metrics.worker_families(worker.tally)

        await _serve("worker", worker, setting, families)
    finally:
        await handler.close()
        if guard is not None:
            await guard.close()
    if worker.slots.running:
        _leave()


def _leave() -> None:
    """End at once: the event loop would wait, without end, for handlers or checks that ignore their cancellation."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or nobody reads it: what a handler printed is lost then
            stream.flush()
    os._exit(0)


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
            await _serve("scanner", scanner, setting, scrape.families)
        finally:
            await connection.close()


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
        _leave()


async def _eraser(setting: Setting, patience_seconds: float) -> None:
    eraser = Eraser(setting.broker, setting.address, patience_seconds=patience_seconds)

    async def families(_horizons: Horizons) -> Iterable[metrics.Family]:
        return metrics.eraser_families(eraser.tally, eraser.erase.shards)

    await _serve("eraser", eraser, setting, families)


async def _serve(
    name: str,
    process: Process,
    setting: Setting,
    families: Callable[[Horizons], Awaitable[Iterable[metrics.Family]]],
    *,
    seconds: float | None = None,
) -> None:
    async with _signals() as (stop, hurry):
        # No restart helps against a Redis that hangs: a step may wait for a batch before its own, and then for itself.
        patience = max(STUCK_AFTER_SECONDS, 4 * setting.address.timeout_seconds)
        runner, port = await Probes(process, families, patience).serve(setting.host, setting.port)
        fields = {
            "process": name,
            "queue": setting.queue.queue,
            "redis": setting.address.where,
            "port": port,
            "pid": os.getpid(),
        }
        log.info("started", extra={"fields": fields})
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        try:
            await process.run(stop, hurry)
        finally:
            await runner.cleanup()
            log.info("stopped", extra={"fields": {"process": name}})


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

"""The common part of scanner, worker, reaper and eraser: signals, probes, exit codes.

Not here: the processes. Each has its own module, and a process imports no other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from delayq.handlers import forked_children
from delayq.protocol.commands import Commands
from delayq.service.loop import STUCK_AFTER_SECONDS
from delayq.service.probes import Probes
from delayq.service.shutdown import EXIT_SECONDS, end_within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from delayq.connection import Address
    from delayq.contract import DelayQueue
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.service.exposition import Family
    from delayq.service.loop import Loop

    Families = Callable[[DueHistogram], Awaitable[Iterable[Family]]]

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0  # for a process without handlers to stop, in addition to its calls of Redis


class Process(Protocol):
    """Scanner, Worker, Reaper or Eraser."""

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops that probes check."""

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Run until `stop`; a second signal sets `hurry`."""


@dataclass(frozen=True)
class Setting:
    """The start parameters of a process."""

    queue: DelayQueue
    address: Address
    secrets_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    horizons_port: int | None = None
    """The port of a scanner's server for horizons; None: no server."""

    @cached_property
    def commands(self) -> Commands:
        """The queue's verbs: one object for the whole process, so that all parts use the same shard map."""
        spec = self.queue.spec
        prefix, limits = spec.redis.key_prefix, spec.limits
        return Commands(self.queue.queue, prefix=prefix, shards=spec.shards, limits=limits)


async def serve(
    name: str,
    process: Process,
    setting: Setting,
    families: Families,
    *,
    seconds: float | None = None,
    stop_seconds: float = STOP_SECONDS,
) -> None:
    """Run a process for `seconds`, or until a signal; stopping may take `stop_seconds` and three timeouts of Redis."""
    async with _signals() as (stop, hurry):
        # A restart does not help while Redis hangs: a step may wait for an earlier batch, and then for its own.
        patience = max(STUCK_AFTER_SECONDS, 4 * setting.address.timeout_seconds)
        probes = Probes(process, families, patience)
        servers = [probes.server()]
        port = await servers[0].start(setting.host, setting.port)
        fields = {
            "process": name,
            "queue": setting.queue.queue,
            "redis": setting.address.where,
            "port": port,
            "pid": os.getpid(),
        }
        if setting.horizons_port is not None:
            servers.append(probes.horizons_server())
            fields["horizons_port"] = await servers[1].start(setting.host, setting.horizons_port)
        log.info("started", extra={"fields": fields})
        forked_children.watch()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        bounded = asyncio.create_task(_bounded(stop, stop_seconds + 3 * setting.address.timeout_seconds))
        try:
            await process.run(stop, hurry)
        finally:
            bounded.cancel()
            for server in servers:
                await server.close()
            log.info("stopped", extra={"fields": {"process": name}})


async def _bounded(stop: asyncio.Event, seconds: float) -> None:
    await stop.wait()
    end_within(seconds + EXIT_SECONDS, 1)


@asynccontextmanager
async def _signals() -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """The first SIGTERM or SIGINT sets `stop`, the second `hurry`."""
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

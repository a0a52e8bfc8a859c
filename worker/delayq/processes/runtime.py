"""The common part of scanner, worker, reaper and eraser: settings, probes, exit codes.

A process may serve several queues in one event loop.
Not here: the processes. Each has its own module, and a process imports no other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from delayq.client.document import named
from delayq.connection import Address
from delayq.errors import InvalidDocument
from delayq.handlers import forked_children
from delayq.processes import missing
from delayq.processes.signals import signals
from delayq.protocol.commands import Commands
from delayq.service import logs
from delayq.service.loop import STUCK_AFTER_SECONDS
from delayq.service.loop_watch import LoopWatch
from delayq.service.probes import Probes
from delayq.service.shutdown import EXIT_SECONDS, end_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from delayq.client.document import Document
    from delayq.contract import DelayQueue
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.service.exposition import Family
    from delayq.service.loop import Loop
    from delayq.service.loop_watch import StandIn

    Families = Callable[[DueHistogram], Awaitable[Iterable[Family]]]
    Open = Callable[["Setting"], AbstractAsyncContextManager["Opened"]]

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

    document: Document
    url: str | None
    """Redis to use instead of spec.redis; None: spec.redis."""
    secrets_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    horizons_port: int | None = None
    """The port of a scanner's server for horizons; None: no server."""

    @property
    def queue(self) -> DelayQueue:
        """The document."""
        return self.document.queue

    @cached_property
    def address(self) -> Address:
        """The Redis of the queue. InvalidDocument when a mounted file that it needs is missing or invalid."""
        return Address.of(self.queue.spec.redis, self.secrets_dir, url=self.url)

    @cached_property
    def commands(self) -> Commands:
        """The queue's verbs: one object for the whole process, so that all parts use the same shard map."""
        spec = self.queue.spec
        return Commands(
            self.queue.queue,
            prefix=spec.redis.key_prefix,
            shards=spec.shards,
            limits=spec.limits,
            drops_expired=spec.delivery.on_expired == "Drop",
            finished=spec.retention.finished,
        )


class Opened(NamedTuple):
    """A process of one queue, ready to run; stopping may take `stop_seconds`.

    `stand_in` does what cannot wait while users' code blocks the event loop. Processes of several queues run no such
    code.
    """

    process: Process
    families: Families
    stop_seconds: float = STOP_SECONDS
    stand_in: StandIn | None = None


def counted(families: Callable[[], Iterable[Family]]) -> Families:
    """Return metrics that take no call of Redis, with any horizons of the scrape."""

    async def whatever_is_asked(_horizons: DueHistogram) -> Iterable[Family]:
        return families()

    return whatever_is_asked


class Several:
    """Processes of several queues as one process."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        """Start nothing yet. `processes` is by queue."""
        self._processes = processes

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops of all queues."""
        return [loop for each in self._processes.values() for loop in each.loops]

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Run all of them, each with its queue's name in its log events; an error of one stops all."""
        tasks = []
        for queue, process in self._processes.items():
            context = copy_context()
            context.run(logs.QUEUE.set, queue)
            tasks.append(asyncio.create_task(process.run(stop, hurry), context=context))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            stop.set()
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()


async def serve_queues(
    name: str, settings: Sequence[Setting], open_process: Open, *, seconds: float | None = None
) -> None:
    """Serve one queue or several in one process, once the keys are mounted that it reads when it begins.

    The host and the ports are those of the first setting.
    """
    await missing.wait(name, settings)
    opened: list[Opened] = []
    async with AsyncExitStack() as stack:
        for setting in settings:
            try:
                opened.append(await stack.enter_async_context(open_process(setting)))
            except InvalidDocument as error:
                raise named(error, setting.document) from error
        process, families, stop_seconds, stand_in = opened[0]
        if opened[1:]:
            names = (setting.queue.queue for setting in settings)
            process = Several(dict(zip(names, (each.process for each in opened), strict=True)))
            families = _merged([each.families for each in opened])
            stop_seconds, stand_in = max(each.stop_seconds for each in opened), None
        await serve(
            *(name, process, settings, families),
            seconds=seconds,
            stop_seconds=stop_seconds,
            stand_in=stand_in,
        )


def _merged(exported: Sequence[Families]) -> Families:
    """Join the metrics of several queues: a family occurs once, and each of its samples names its queue."""

    async def families(horizons: DueHistogram) -> Iterable[Family]:
        joined: dict[str, Family] = {}
        for family in chain(*await asyncio.gather(*(each(horizons) for each in exported))):
            before = joined.get(family.name, family._replace(samples=()))
            joined[family.name] = before._replace(samples=[*before.samples, *family.samples])
        return joined.values()

    return families


async def serve(
    name: str,
    process: Process,
    settings: Sequence[Setting],
    families: Families,
    *,
    seconds: float | None = None,
    stop_seconds: float = STOP_SECONDS,
    stand_in: StandIn | None = None,
) -> None:
    """Run a process for `seconds`, or until a signal; stopping may take `stop_seconds` and three timeouts of Redis."""
    setting, timeout_seconds = settings[0], max(each.address.timeout_seconds for each in settings)
    async with signals() as (stop, hurry):
        # A restart does not help while Redis hangs: a step may wait for an earlier batch, and then for its own.
        patience = max(STUCK_AFTER_SECONDS, 4 * timeout_seconds)
        probes = Probes(process, families, patience)
        servers = [probes.server()]
        port = await servers[0].start(setting.host, setting.port)
        fields = {
            "process": name,
            "queue": ", ".join(each.queue.queue for each in settings),
            "redis": ", ".join(dict.fromkeys(each.address.where for each in settings)),
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
        bounded = asyncio.create_task(_bounded(stop, stop_seconds + 3 * timeout_seconds))
        watch = LoopWatch(stand_in, servers[0], probes) if stand_in is not None else nullcontext()
        try:
            with watch:
                await process.run(stop, hurry)
        finally:
            bounded.cancel()
            for server in servers:
                await server.close()
            log.info("stopped", extra={"fields": {"process": name}})


async def _bounded(stop: asyncio.Event, seconds: float) -> None:
    await stop.wait()
    end_within(seconds + EXIT_SECONDS, 1)

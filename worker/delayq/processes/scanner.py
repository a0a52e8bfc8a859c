"""`delayq scanner`: wakes workers, and exports the queue's metrics."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from delayq.connection import AsyncConnection
from delayq.processes.recovery import recovery_of
from delayq.processes.runtime import Opened, serve_queues
from delayq.protocol.due_histogram import ALWAYS
from delayq.resharding import DesiredShards
from delayq.scanner.exporter import Exporter
from delayq.scanner.scanner import Scanner
from delayq.service.scrape_cache import ScrapeCache
from delayq.service.shutdown import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from delayq.processes.runtime import Families, Setting
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.service.exposition import Family


def run_scanner(settings: Sequence[Setting]) -> None:
    """Run a scanner of these queues until SIGTERM or SIGINT."""
    run(serve_queues("scanner", settings, _scanner))


@asynccontextmanager
async def _scanner(setting: Setting) -> AsyncIterator[Opened]:
    # Containers in their host's network share its name, and each has PID 1.
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    connection = AsyncConnection(setting.address)
    async with recovery_of(setting) as recovery:
        scanner = Scanner(
            *(setting.queue.spec, setting.commands, setting.address),
            owner=owner,
            recovery=recovery,
            wish=DesiredShards.of(setting.queue),
            document=setting.queue,
        )
        scrape = Exporter(scanner, setting.commands, connection, setting.queue.spec)
        try:
            yield Opened(scanner, _shared(scrape))
        finally:
            await connection.close()


def _shared(scrape: Exporter) -> Families:
    """Cache scrapes without a query: any pod may send them, and each costs calls of Redis."""

    async def listed() -> list[Family]:
        return list(await scrape.families(ALWAYS))

    recent = ScrapeCache(listed)

    async def families(horizons: DueHistogram) -> Iterable[Family]:
        if horizons is ALWAYS:
            return await recent.get()
        return await scrape.families(horizons)

    return families

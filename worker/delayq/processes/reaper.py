"""`delayq reaper`: repairs a queue and enforces its retention."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from delayq import guards
from delayq.processes.recovery import recovery_of
from delayq.processes.runtime import Opened, counted, serve_queues
from delayq.reaper.guard_retention import Ledger
from delayq.reaper.reaper import Reaper
from delayq.service import metrics
from delayq.service.shutdown import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from delayq.processes.runtime import Setting


def run_reaper(settings: Sequence[Setting], seconds: float | None, *, once: bool = False) -> None:
    """Run a reaper of these queues until SIGTERM or SIGINT, for some seconds at most, or until it has swept `once`."""
    run(serve_queues("reaper", settings, partial(_reaper, once=once), seconds=seconds))


@asynccontextmanager
async def _reaper(setting: Setting, *, once: bool) -> AsyncIterator[Opened]:
    spec, commands = setting.queue.spec, setting.commands
    guard: object = None
    if spec.guard is not None and spec.guard.sql is not None:
        guard = guards.build(setting.queue, setting.address, secrets_dir=setting.secrets_dir, apart=True)
    ledger = guard if isinstance(guard, Ledger) else None
    async with recovery_of(setting) as recovery:
        reaper = Reaper(spec, commands, setting.address, recovery=recovery, ledger=ledger, once=once)
        try:
            yield Opened(reaper, counted(lambda: metrics.process_families(reaper.counters)))
        finally:
            if ledger is not None:
                await ledger.close()

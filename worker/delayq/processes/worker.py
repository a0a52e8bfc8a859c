"""`delayq worker`: the handler, its guard, and the services that claim tasks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import guards, handlers
from delayq.processes.runtime import serve
from delayq.service import metrics
from delayq.service.shutdown import leave, run
from delayq.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.processes.runtime import Setting
    from delayq.protocol.due_histogram import DueHistogram
    from delayq.service.exposition import Family


def run_worker(setting: Setting) -> None:
    """Run a worker until SIGTERM or SIGINT; HandlerSetupError before it starts."""
    run(_worker(setting))


async def _worker(setting: Setting) -> None:
    handler = handlers.build(setting.queue, secrets_dir=setting.secrets_dir, address=setting.address)
    guard = guards.build(
        setting.queue, setting.address, secrets_dir=setting.secrets_dir, apart=not handler.joins
    )
    call = handler.call if guard is None else handler.under(guard)
    await handler.start()
    try:
        worker = Worker(
            setting.queue.spec, setting.commands, setting.address, call, guard=guard, kinds=handler.kinds
        )

        async def families(_horizons: DueHistogram) -> Iterable[Family]:
            worker.counters.busy = worker.slots.busy
            return metrics.worker_families(worker.counters)

        await serve("worker", worker, [setting], families, stop_seconds=worker.stop_seconds)
    finally:
        await handler.close()
        if guard is not None:
            await guard.close()
    if worker.slots.busy:
        leave()

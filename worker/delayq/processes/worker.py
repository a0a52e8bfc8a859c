"""`delayq worker`: the handler, its guard, and the services that claim tasks for them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from delayq import guards, handlers
from delayq.errors import InvalidDocument
from delayq.processes.runtime import Opened, counted, serve_queues
from delayq.service import metrics
from delayq.service.shutdown import leave, run
from delayq.worker.kinds_publication import published
from delayq.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from delayq.processes.runtime import Setting
    from delayq.service.exposition import Family


def run_worker(settings: Sequence[Setting]) -> None:
    """Run a worker of these queues until SIGTERM or SIGINT; InvalidDocument before it starts.

    Several queues need handlers that run no code of their users in this process.
    """
    for setting in settings[1:] and settings:
        if not setting.queue.spec.shares_workers:
            names = ", ".join(each.queue.queue for each in settings)
            raise InvalidDocument(
                f"{setting.document.name}: a worker of several queues needs http handlers only, and no guard, in each; "
                f"choose one with --queue: {names}"
            )
    run(serve_queues("worker", settings, _worker))


@asynccontextmanager
async def _worker(setting: Setting) -> AsyncIterator[Opened]:
    handler = handlers.build(setting.queue, secrets_dir=setting.secrets_dir, address=setting.address)
    guard = guards.build(setting.queue, setting.address, secrets_dir=setting.secrets_dir, apart=False)
    covered = handler.coverage(setting.queue.spec.guard)
    call = handler.call if guard is None else handler.under(guard, covered)
    known = handler.described()
    await handler.start()
    try:
        worker = Worker(
            setting.queue.spec,
            setting.commands,
            setting.address,
            call,
            guard=guard,
            coverage=covered,
            kinds=handler.kinds,
            batches=handler.batches,
        )
        worker.await_files(handler.lacks)
        if known is not None:
            worker.publish(published(handler.kinds or {}, known))

        def families() -> Iterable[Family]:
            worker.counters.busy, worker.counters.unusable = worker.slots.busy, worker.slots.unusable
            return metrics.worker_families(worker.counters)

        yield Opened(worker, counted(families), worker.stop_seconds, worker.backup_renewal)
    finally:
        await handler.close()
        if guard is not None:
            await guard.close()
    if worker.slots.busy:
        leave()

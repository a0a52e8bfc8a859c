"""Runs kopf: settings, API backoff, and restart after an error.

Not here: event handlers (handlers.py); watches that kopf cannot do (reflector.py).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from typing import TYPE_CHECKING, Any, Final, cast

import kopf

from delayq_operator.base import names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

log = logging.getLogger(__name__)

LONGEST_BACKOFF_SECONDS: Final = 2.0
BEGIN_ANEW_SECONDS: Final = 2.0


class Backoffs:
    """Short and spread pauses between attempts: an API server that is back is noticed within two seconds.

    They never run out: kopf would give up for good after the last one, and all it asks for is a list and a watch.
    """

    def __iter__(self) -> Iterator[float]:
        """Begin anew for each request; kopf iterates over the same object every time."""
        for attempt in itertools.count():
            yield min(LONGEST_BACKOFF_SECONDS, 0.25 * 2 ** min(attempt, 8)) * random.uniform(0.5, 1)


class Pace:
    """One a second: an API server that answers 401 for a while would else be asked without a pause."""

    def __init__(self) -> None:
        self._next = 0.0

    async def keep(self) -> None:
        """Wait until it is time for another."""
        now = asyncio.get_running_loop().time()
        pause, self._next = max(0.0, self._next - now), max(now, self._next) + 1.0
        await asyncio.sleep(pause)


def configure(settings: kopf.OperatorSettings) -> None:
    """Set kopf up so that it shares nothing with other operators and needs no rights beyond DelayQueues."""
    # An object named "default" could freeze us; our Lease elects the leader.
    settings.peering.standalone = True
    settings.scanning.disabled = True  # else it would need to watch CRDs and namespaces
    # Never set, for no handler needs one. It must not be ours: kopf takes away a finalizer that it finds unneeded.
    settings.persistence.finalizer = f"{names.OPERATOR}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.OPERATOR)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.OPERATOR)
    settings.posting.enabled = False  # events.py posts
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.watching.reconnect_backoff = 0.1
    settings.queueing.idle_timeout = 1  # how long a stream is kept for an object after its last event
    settings.queueing.exit_timeout = 0.5
    # Else a SIGKILL comes after each time that it began anew.
    settings.process.ultimate_exiting_timeout = None
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # "handler succeeded", for each event


async def run(memo: object, namespaces: Collection[str], *, started: Callable[[], None]) -> None:
    """Run kopf, for ever. It gives up at the first odd answer; then it begins anew, and `started` is called again.

    Not kopf.operator(): when that ends, it cancels every task of the process that is younger than itself.
    """
    while True:
        # Named, or kopf would ask who runs it, and a container's user need not have a name.
        tasks = await kopf.spawn_tasks(
            identity=cast("Any", names.OPERATOR),
            memo=memo,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )
        started()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            log.info("kopf_stopped", extra={"fields": {"errors": await _ended(tasks)}})
        await asyncio.sleep(BEGIN_ANEW_SECONDS * random.uniform(0.5, 1))


async def _ended(tasks: Collection[asyncio.Task[None]]) -> list[str]:
    """End kopf's tasks, and the watches that a failed one leaves running; what went wrong in the tasks."""
    results = await _cancelled(tasks)
    await _cancelled([task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")])
    return [repr(result) for result in results if isinstance(result, Exception)]


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> list[BaseException | None]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)

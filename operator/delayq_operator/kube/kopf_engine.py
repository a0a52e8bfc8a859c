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
    """Short pauses with jitter between attempts: a recovered API server is noticed within two seconds.

    The sequence is infinite, because kopf gives up after the last item. It affects only lists and watches: kopf sends
    no other requests.
    """

    def __iter__(self) -> Iterator[float]:
        """Start a new sequence for each request; kopf iterates over the same object every time."""
        for attempt in itertools.count():
            yield min(LONGEST_BACKOFF_SECONDS, 0.25 * 2 ** min(attempt, 8)) * random.uniform(0.5, 1)


class Pace:
    """Limit to one a second: otherwise kopf would send requests without a pause while the API server replies 401."""

    def __init__(self) -> None:
        self._next = 0.0

    async def keep(self) -> None:
        """Wait until the next attempt is due."""
        now = asyncio.get_running_loop().time()
        pause, self._next = max(0.0, self._next - now), max(now, self._next) + 1.0
        await asyncio.sleep(pause)


def configure(settings: kopf.OperatorSettings) -> None:
    """Configure kopf: no state shared with other operators, and no permissions except for DelayQueues."""
    # A peering object named "default" could suspend kopf; the Lease elects the leader.
    settings.peering.standalone = True
    settings.scanning.disabled = True  # otherwise it would watch CRDs and namespaces
    # Never set, as no handler needs one. It must differ from ours: kopf removes a finalizer that it does not need.
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
    # Otherwise kopf sends SIGKILL after each restart.
    settings.process.ultimate_exiting_timeout = None
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # "handler succeeded", for each event


async def run(memo: object, namespaces: Collection[str], *, started: Callable[[], None]) -> None:
    """Run kopf until cancelled. After an unexpected response kopf ends; it is restarted, and `started` called again.

    Not kopf.operator(): when that ends, it cancels every task of the process that is younger than itself.
    """
    while True:
        # Set, because kopf would look up the user name, and the user of a container may have none.
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
    """Cancel kopf's tasks, and watches that a failed task leaves running. Returns the errors of the tasks."""
    results = await _cancelled(tasks)
    await _cancelled([task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")])
    return [repr(result) for result in results if isinstance(result, Exception)]


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> list[BaseException | None]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)

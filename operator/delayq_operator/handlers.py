"""kopf's part: DelayQueues as they come, change and go.

Only on.event, which leaves no finalizer and no annotation behind, and which never decides anything: an event just puts
the DelayQueue into our copy and its key into the line. kopf neither retries an event handler nor folds events together;
work.py does both.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import signal
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import kopf

from delayq_operator.base import names
from delayq_operator.base.names import Key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.watch_verifier import WatchVerifier

log = logging.getLogger(__name__)

TOKEN_MINUTES: Final = 5  # kubelet renews a bound token at four fifths of its life, which is an hour or more
LONGEST_BACKOFF_SECONDS: Final = 2.0
BEGIN_ANEW_SECONDS: Final = 2.0


class Pace:
    """One a second: an API server that answers 401 for a while would else be asked without a pause."""

    def __init__(self) -> None:
        """The first need not wait."""
        self._next = 0.0

    async def keep(self) -> None:
        """Wait until it is time for another."""
        now = asyncio.get_running_loop().time()
        pause, self._next = max(0.0, self._next - now), max(now, self._next) + 1.0
        await asyncio.sleep(pause)


@dataclass(frozen=True, slots=True)
class Memo:
    """What handlers are given; kopf copies it for each object, so it only points."""

    queues: Queues
    watch_verifier: WatchVerifier
    logins: Pace = field(default_factory=Pace)


class Backoffs:
    """Short and spread pauses between attempts: an API server that is back is noticed within two seconds.

    They never run out: kopf would give up for good after the last one, and all it asks for is a list and a watch.
    """

    def __iter__(self) -> Iterator[float]:
        """Begin anew for each request; kopf iterates over the same object every time."""
        for attempt in itertools.count():
            yield min(LONGEST_BACKOFF_SECONDS, 0.25 * 2 ** min(attempt, 8)) * random.uniform(0.5, 1)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    """Set kopf up so that it shares nothing with other operators and needs no rights beyond DelayQueues."""
    settings.peering.standalone = (
        True  # an object named "default" could freeze us; our Lease elects the leader
    )
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
    settings.process.ultimate_exiting_timeout = (
        None  # else a SIGKILL comes after each time that it began anew
    )
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # "handler succeeded", for each event


@kopf.on.login()
async def login(memo: Memo, **kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 -- kopf's
    """Log in as the pod's service account, or else with $KUBECONFIG; again every few minutes, for tokens expire."""
    await memo.logins.keep()
    info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    return info and replace(info, expiration=datetime.now(UTC) + timedelta(minutes=TOKEN_MINUTES))


@kopf.on.event(names.DELAY_QUEUE.group, names.DELAY_QUEUE.version, names.DELAY_QUEUE.plural)
async def delay_queue(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    """Take note of a DelayQueue."""
    metadata = event["object"]["metadata"]
    key = Key(metadata["namespace"], metadata["name"])
    if event["type"] == "DELETED":
        memo.queues.gone(key, metadata["uid"])
    else:
        memo.queues.seen(event["object"])
    memo.watch_verifier.brought(key, int(metadata["resourceVersion"]), last=event["type"] == "DELETED")


async def follow(memo: Memo, namespaces: Collection[str], stop: asyncio.Event) -> None:
    """Have kopf bring DelayQueues, for ever. It gives up at the first odd answer; then it begins anew.

    Not kopf.operator(): when that ends, it cancels every task of the process that is younger than itself.
    """
    while True:
        # Named, or kopf would ask who runs it, and a container's user need not have a name.
        tasks = await kopf.spawn_tasks(
            identity=cast("Any", "delayq-operator"),
            memo=memo,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )
        stop_on_signals(stop)  # kopf has just taken them
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            log.info("kopf_stopped", extra={"fields": {"errors": await _ended(tasks)}})
        await asyncio.sleep(BEGIN_ANEW_SECONDS * random.uniform(0.5, 1))


async def _ended(tasks: Collection[asyncio.Task[None]]) -> list[str]:
    """End kopf's tasks; what went wrong in them.

    A watch that fails has kopf leave those of the other namespaces running.
    """
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    watches = [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]
    for task in watches:
        task.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    return [repr(result) for result in results if isinstance(result, Exception)]


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` when a signal asks the process to end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

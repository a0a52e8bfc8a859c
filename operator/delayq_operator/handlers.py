"""kopf's part: DelayQueues as they come, change and go.

Only on.event, which leaves no finalizer and no annotation behind, and which never decides anything: an event just puts
the DelayQueue into our copy and its key into the line. kopf neither retries an event handler nor folds events together;
work.py does both.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import kopf

from delayq_operator import names
from delayq_operator.names import Key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq_operator.inventory import Queues

TOKEN_MINUTES: Final = 5  # kubelet renews a bound token at four fifths of its life, which is an hour or more
LONGEST_BACKOFF_SECONDS: Final = 2.0
ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class Memo:
    """What handlers are given; kopf copies it for each object, so it only points."""

    queues: Queues


class Backoffs:
    """Short and spread pauses between attempts: an API server that is back is noticed within two seconds."""

    def __iter__(self) -> Iterator[float]:
        """Begin anew for each request; kopf iterates over the same object every time."""
        for attempt in range(ATTEMPTS):
            yield min(LONGEST_BACKOFF_SECONDS, 0.25 * 2**attempt) * random.uniform(0.5, 1)


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
    settings.process.ultimate_exiting_timeout = 20
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # "handler succeeded", for each event


@kopf.on.login()
async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 -- kopf's
    """Log in as the pod's service account, or else with $KUBECONFIG; again every few minutes, for tokens expire."""
    info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    return info and replace(info, expiration=datetime.now(UTC) + timedelta(minutes=TOKEN_MINUTES))


@kopf.on.event(names.DELAY_QUEUE.group, names.DELAY_QUEUE.version, names.DELAY_QUEUE.plural)
async def delay_queue(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    """Take note of a DelayQueue."""
    body = event["object"]
    if event["type"] == "DELETED":
        metadata = body["metadata"]
        memo.queues.gone(Key(metadata["namespace"], metadata["name"]), metadata["uid"])
    else:
        memo.queues.seen(body)

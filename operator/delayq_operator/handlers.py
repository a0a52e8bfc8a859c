"""kopf's handlers: startup, login, and DelayQueue events.

Only on.event, which leaves no finalizer and no annotation. An event updates the informer cache and enqueues the key.
kopf neither retries event handlers nor merges events; work_queue.py does both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import kopf

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.kube import kopf_engine

if TYPE_CHECKING:
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.watch_verifier import WatchVerifier

TOKEN_MINUTES: Final = 5  # kubelet renews a bound token at four fifths of its life, which is an hour or more


@dataclass(frozen=True, slots=True)
class Memo:
    """What handlers are given; kopf copies it for each object, so it only points."""

    queues: Queues
    watch_verifier: WatchVerifier
    logins: kopf_engine.Pace = field(default_factory=kopf_engine.Pace)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    kopf_engine.configure(settings)


@kopf.on.login()
async def login(memo: Memo, **kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 -- kopf's
    """Log in as the pod's service account, or else with $KUBECONFIG; again every few minutes, for tokens expire."""
    await memo.logins.keep()
    info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    return info and replace(info, expiration=datetime.now(UTC) + timedelta(minutes=TOKEN_MINUTES))


@kopf.on.event(names.DELAY_QUEUE.group, names.DELAY_QUEUE.version, names.DELAY_QUEUE.plural)
async def delay_queue(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    metadata, deleted = event["object"]["metadata"], event["type"] == "DELETED"
    key = Key(metadata["namespace"], metadata["name"])
    if deleted:
        memo.queues.gone(key, metadata["uid"])
    else:
        memo.queues.seen(event["object"])
    memo.watch_verifier.brought(key, int(metadata["resourceVersion"]), last=deleted)

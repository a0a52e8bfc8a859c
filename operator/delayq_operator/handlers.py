"""kopf's handlers: startup, login, and the events of every kind that is watched.

Only on.event, which leaves no finalizer and no annotation. An event goes into the informer caches (inventory.py), which
enqueue the key of the DelayQueue. kopf neither retries event handlers nor merges events; work_queue.py does both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import kopf

from delayq_operator.kube import kopf_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delayq.kube.objects import Kind


@dataclass(frozen=True, slots=True)
class Memo:
    """What handlers are given; kopf copies it for each object, so it only points."""

    take: Callable[[Kind, Mapping[str, Any]], None]
    """Takes an event, in the thread of kopf."""
    answered: Callable[[], None]
    """Called in the thread of kopf when the API server has answered a watch."""
    logins: kopf_engine.Pace = field(default_factory=kopf_engine.Pace)


def registry(kinds: Iterable[Kind]) -> kopf.OperatorRegistry:
    """Return the handlers for these kinds."""
    found = kopf.OperatorRegistry()
    kopf.on.startup(registry=found)(kopf_engine.configure)
    kopf.on.login(registry=found)(login)
    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, param=kind, registry=found)(deliver)
    return found


async def login(memo: Memo, **kwargs: Any) -> kopf.AiohttpSession | None:  # noqa: ANN401 -- kopf's
    """Log in as the pod's service account, or else with $KUBECONFIG; kopf asks again after an answer of 401.

    By then kubelet has renewed the token. It has no expiration: a login interrupts every watch, and may end kopf.
    """
    await memo.logins.keep()
    info = kopf.login_with_service_account(**kwargs)
    if info is not None and (server := incluster_server()):
        info = replace(info, server=server)  # kopf's is a name, for which the DNS of the cluster has to work
    info = info or kopf.login_with_kubeconfig(**kwargs)
    return kopf_engine.session(info, memo.answered) if info else None


def incluster_server() -> str:
    """Return the address of the API server that a pod is given; empty outside of one."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


async def deliver(event: kopf.RawEvent, memo: Memo, **given: Any) -> None:  # noqa: ANN401 -- kopf's
    memo.take(given["param"], event)

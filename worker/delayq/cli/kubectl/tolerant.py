"""Reading what may not be there, or what the user may not read: then there is less to say, and it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.cli.exits import NOT_FOUND, REFUSED, Wrong
from delayq.cli.kubectl import queues

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object


def one_or_none(kubectl: Kubectl, name: str, namespace: str) -> Object | None:
    """Return a DelayQueue, if there is one."""
    try:
        return kubectl.json("get", queues.KIND, name, namespace=namespace)
    except Wrong as error:
        if error.code == NOT_FOUND:
            return None
        raise


def readable(kubectl: Kubectl, resource: str, name: str, namespace: str) -> Object | None:
    """Return an object; empty when there is none, None when the user may not read it."""
    try:
        return kubectl.json("get", resource, name, namespace=namespace)
    except Wrong as error:
        if error.code == NOT_FOUND:
            return {}
        if error.code == REFUSED:
            return None
        raise

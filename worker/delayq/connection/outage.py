"""The cause of an outage, as one of a few words. It is a label of metrics, so it contains no user input."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.contract.metrics import Outage

_REPLIES: Final[Mapping[str, Outage]] = {
    "LOADING": "loading",
    "READONLY": "read_only",
    "MASTERDOWN": "read_only",
    "WAIT": "read_only",  # cannot be used with replica instances
    "WAITAOF": "read_only",
    "MISCONF": "cannot_persist",
    "NOREPLICAS": "no_replicas",
    "CLUSTERDOWN": "cluster_down",
    "TRYAGAIN": "migrating",
    "MOVED": "migrating",
    "ASK": "migrating",
    "Script": "migrating",  # attempted to access a non local key, which has just migrated
    "script": "migrating",
    "NOAUTH": "auth",
    "WRONGPASS": "auth",
}
"""First word of an error reply → cause."""

_KINDS: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Outage], ...]] = (
    (AuthenticationError, "auth"),
    (ssl.SSLError, "tls"),
    (socket.gaierror, "dns"),
    (ConnectionRefusedError, "refused"),
    ((TimeoutError, RedisTimeoutError), "timeout"),
)


def of_reply(text: str) -> Outage:
    """Return the cause for an error reply."""
    return _REPLIES.get(text.partition(" ")[0], "other")


def of_error(error: BaseException) -> Outage:
    """Return the cause for an exception; redis-py wraps the errors of sockets."""
    for each in _chain(error):
        for kind, cause in _KINDS:
            if isinstance(each, kind):
                return cause
    return "other"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

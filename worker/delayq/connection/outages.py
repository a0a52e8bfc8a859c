"""The cause of an outage, by what Redis, OpenSSL or the kernel said: one of a few words, a label of metrics.

Not here: what the causes mean and what to do (delayq/contract/outages.py).
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final

from redis.exceptions import AuthenticationError, InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delayq.errors import Outage

DENIED: Final = re.compile(r"NOPERM|can't run this command|no permissions", re.IGNORECASE)
"""Redis' errors for a missing right, of a call or, worded differently by each version, of a script."""

CODES: Final[Mapping[str, Outage]] = {
    "LOADING": "loading",
    "READONLY": "read_only",
    "MASTERDOWN": "read_only",
    "UNBLOCKED": "read_only",
    "WAIT": "read_only",  # cannot be used with replica instances
    "WAITAOF": "read_only",
    "BUSY": "busy",
    "OOM": "out_of_memory",
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
    "DENIED": "protected_mode",
}
"""First word of an error reply → cause."""

_REPLIES: Final[tuple[tuple[re.Pattern[str], Outage], ...]] = (
    (DENIED, "denied"),
    (re.compile(r"DB index|SELECT is not allowed"), "no_database"),
    (re.compile(r"max number of (?:cluster|clients)"), "max_clients"),
    (re.compile(r"AUTH\b.* password|invalid password|arguments for 'auth' command"), "auth"),
)
"""Words of an error reply without a code of its own → cause."""

_TLS: Final[tuple[tuple[re.Pattern[str], Outage], ...]] = (
    (re.compile(r"(?i)(?:hostname|ip address) mismatch|certificate is not valid for"), "tls_name"),
    (re.compile(r"(?i)certificate has expired|certificate is not yet valid"), "tls_expired"),
    (re.compile(r"(?i)certificate[ _]required|handshake[ _]failure"), "tls_client"),
    (re.compile(r"(?i)certificate[ _]verify[ _]failed"), "tls_untrusted"),
    (re.compile(r"(?i)wrong[ _]version[ _]number|record[ _]layer[ _]failure"), "tls_absent"),
)
"""Words of OpenSSL → cause."""

_ERRNOS: Final[Mapping[int, Outage]] = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
    errno.EHOSTDOWN: "no_route",
    errno.EPERM: "no_route",  # how some network policies reject a packet
    errno.ECONNRESET: "closed",
    errno.ECONNABORTED: "closed",
    errno.EPIPE: "closed",
}
_KINDS: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Outage], ...]] = (
    (AuthenticationError, "auth"),
    (ssl.SSLEOFError, "closed"),
    (ssl.SSLError, "tls"),
    (socket.gaierror, "dns"),
    ((TimeoutError, RedisTimeoutError), "timeout"),
    (EOFError, "closed"),
    (InvalidResponse, "not_redis"),
)
_SERVER_CLOSED: Final = "closed by server"  # redis-py's words, without a cause
_SEVERAL: Final = re.compile(
    r"\[Errno (\d+)\]"
)  # asyncio's text for a host of several addresses, without an errno


def of_reply(text: str) -> Outage:
    """Return the cause for an error reply."""
    return CODES.get(text.partition(" ")[0]) or _worded(text, _REPLIES) or "rejected"


def of_failure(error: BaseException) -> Outage:
    """Return the cause for a connection that failed.

    redis-py wraps the errors of sockets, and has connection errors of its own for some replies.
    """
    if getattr(error, "status_code", None) and (replied := of_reply(str(error))) != "rejected":
        return replied
    causes: list[Outage] = [cause for each in _chain(error) if (cause := _cause(each))]
    found = causes[0] if causes else "other"
    return (_worded(str(error), _TLS) if found in ("tls", "other") else None) or found


def _worded(text: str, table: Iterable[tuple[re.Pattern[str], Outage]]) -> Outage | None:
    return next((cause for words, cause in table if words.search(text)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _cause(error: BaseException) -> Outage | None:
    for kind, cause in _KINDS:
        if isinstance(error, kind):
            return cause
    if isinstance(error, OSError):
        numbers = [error.errno] if error.errno else map(int, _SEVERAL.findall(str(error)))
        found = [_ERRNOS[each] for each in numbers if each in _ERRNOS]
        return "refused" if "refused" in found else next(iter(found), None)
    return "closed" if _SERVER_CLOSED in str(error).lower() else None

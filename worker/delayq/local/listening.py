"""Where the servers of a run listen: Redis, and the metrics and probes of every process."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import Final

from delayq.local.datadir import LOOPBACK
from delayq.local.errors import CannotRun
from delayq.service.http_server import EVERYWHERE

log = logging.getLogger(__name__)

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 -- only where the user asks for it
ANY_IPV6: Final = "::"


def addresses(host: str) -> list[str]:
    """Return the IP addresses of --host; CannotRun if no server can listen there."""
    if host == EVERYWHERE:
        return [ANY_IPV4, ANY_IPV6] if socket.has_dualstack_ipv6() else [ANY_IPV4]
    try:
        resolved = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        found = list(dict.fromkeys(str(where[0]) for *_, where in resolved))
        for address in found:
            with _socket(address) as probe:
                probe.bind((address, 0))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotRun(
            f"cannot listen on --host {host}: {reason}",
            "give an address of this machine, such as 127.0.0.1, or * for all of them",
        ) from error
    return found


def of_redis(host: str) -> list[str]:
    """Return the addresses of the embedded Redis: the loopback address is always one, for the run and its commands."""
    found = addresses(host)
    return found if ANY_IPV4 in found else list(dict.fromkeys((LOOPBACK, *found)))


def scraped(host: str) -> str:
    """Return the host at which the run reads the metrics of its processes, for a URL."""
    [first, *_] = addresses(host)
    if ipaddress.ip_address(first).is_unspecified:
        first = LOOPBACK if first == ANY_IPV4 else "::1"
    return f"[{first}]" if ":" in first else first


def is_free(port: int, hosts: list[str]) -> bool:
    """Whether a server can listen on the port at all of these addresses."""
    for host in hosts:
        try:
            with _socket(host) as probe:
                # As Redis: without it, connections of the last run keep the port for a minute.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
                probe.listen(1)  # two sockets may be bound, but only one listens
        except OSError:
            return False
    return True


def warn(host: str, redis: str) -> None:
    """Warn of servers that other machines can reach. `redis`: what to say of the embedded Redis; empty without one."""
    if all(ipaddress.ip_address(each).is_loopback for each in addresses(host)):
        return
    reachable = "metrics and probes of every process, without a password"
    fields = {"host": host, "reachable": f"{reachable}; {redis}" if redis else reachable}
    log.warning("reachable_from_network", extra={"fields": fields})


def _socket(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made

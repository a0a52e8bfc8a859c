"""Check the connection to Redis: DNS name, port, login, mode, latency, clock."""

from __future__ import annotations

import socket
import statistics
import time
from typing import TYPE_CHECKING

from delayq.cli.doctor.findings import Finding, cures, ok, unreachable, warning
from delayq.connection import reason, translated
from delayq.contract.outages import remedy
from delayq.errors import DelayQError, Unavailable
from delayq.scanner import durability

if TYPE_CHECKING:
    from delayq.connection import Address, SyncConnection

PINGS = 100
SLOW_MS, SKEWED_MS = 5.0, 1000


def connect(address: Address) -> Finding:
    """Resolve the name and open a connection, without sending a command."""
    (place,) = address.places
    try:
        if place.is_socket:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(address.timeout_seconds)
                unix.connect(place.host)
            return ok("connect", f"{place} accepts connections")
        return _tcp(address)
    except OSError as error:
        why = reason(error.strerror or str(error) or type(error).__name__)
        return unreachable(
            "connect",
            f"{address.where}: {why}",
            "is Redis running there, and does a firewall or NetworkPolicy allow the connection?",
        )


def _tcp(address: Address) -> Finding:
    host, port = address.places[0]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        return unreachable(
            "connect", f"{host}: {reason(why or 'unknown')}", "is the name right, and resolvable from here?"
        )
    start = time.perf_counter()
    with socket.create_connection((host, port), timeout=address.timeout_seconds) as connected:
        took_ms = (time.perf_counter() - start) * 1000
        peer = connected.getpeername()[0]
    others = f", one of {len(found)} addresses" if len(found) > 1 else ""
    return ok("connect", f"{address.where} is {peer}{others}, and accepts connections ({took_ms:.1f} ms)")


def login(connection: SyncConnection) -> Finding:
    """Log in, with TLS if configured, and check that PING succeeds."""
    user = connection.address.login.name() or "the default user"
    try:
        [reply] = connection.send([("PING",)])
    except Unavailable as error:
        if connection.address.tls is not None and _answers_without_tls(connection.address):
            said = "Redis answers without TLS at this port, but TLS is configured"
            return unreachable("login", said, remedy("tls_absent").cure)
        return unreachable("login", reason(error.why), cures(error))
    except DelayQError as error:
        return unreachable("login", str(error), cures(error))
    if isinstance(reply, Exception):
        refusal = translated(reply, connection.address.where, "PING")
        return unreachable("login", str(refusal), cures(refusal))
    secret = "with a password" if connection.address.login.password else "without a password"
    return ok("login", f"as {user}, {secret}")


def _answers_without_tls(address: Address) -> bool:
    """Whether Redis answers PING without TLS. Such a Redis treats a TLS handshake as an incomplete command."""
    host, port = address.places[0]
    try:
        with socket.create_connection((host, port), timeout=address.timeout_seconds) as plain:
            plain.sendall(b"PING\r\n")
            return plain.recv(1) in (b"+", b"-")
    except OSError:
        return False


def mode(connection: SyncConnection, *, is_cluster: bool) -> Finding | None:
    """Report a server of another mode: a Cluster node has only some shards, a Sentinel stores no tasks."""
    [reply] = connection.send([("INFO", "server")])
    said = reply.decode(errors="replace") if isinstance(reply, bytes) else ""
    if "redis_mode:sentinel" in said:
        hint = "spec.redis.sentinel, or redis+sentinel://host:26379/NAME, with the name of its master"
        return unreachable("mode", "this is a Sentinel, which stores no tasks", hint)
    if "redis_mode:cluster" in said and not is_cluster:
        hint = "use spec.redis.cluster, or redis+cluster://host:port,host:port"
        return unreachable("mode", "this is a Cluster, but configured as one server", hint)
    return None


def latency(connection: SyncConnection) -> Finding:
    """Measure the round-trip time."""
    took = []
    for _ in range(PINGS):
        start = time.perf_counter()
        connection.send([("PING",)])
        took.append((time.perf_counter() - start) * 1000)
    median, worst = statistics.median(took), max(took)
    said = f"median {median:.2f} ms, at most {worst:.1f} ms, of {PINGS} pings"
    if median > SLOW_MS:
        return warning("latency", said, "every claim takes a round trip: put workers nearer to Redis")
    return ok("latency", said)


def clock(connection: SyncConnection) -> Finding:
    """Compare the clocks. Redis' clock decides; this machine's clock matters only to users of --at."""
    before = time.time()
    [reply] = connection.send([("TIME",)])
    offset = durability.clock_offset_seconds(reply, before, time.time())
    if offset is None:
        return warning("clock", f"TIME: {reply}", "allow the user TIME")
    offset_ms = round(offset * 1000)
    said = f"Redis is {abs(offset_ms):,} ms {'ahead of' if offset_ms >= 0 else 'behind'} this machine"
    if abs(offset_ms) > SKEWED_MS:
        return warning(
            "clock",
            f"{said}: no task starts early, and delays are exact, because Redis' clock decides; "
            "but a time by a clock here (--at, due_ms) shifts by the difference",
            "check NTP on both",
        )
    return ok("clock", said)

"""Getting to Redis: its name, its port, its login."""

from __future__ import annotations

import socket
import statistics
import time
from typing import TYPE_CHECKING

from delayq import durability
from delayq.cli.doctor.findings import Finding, ok, unreachable, warning
from delayq.connection import reason
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from delayq.connection import Address, SyncConnection

PINGS = 100
SLOW_MS, SKEWED_MS = 5.0, 1000


def connect(address: Address) -> Finding:
    """Look the name up and open a connection, without a word of Redis."""
    path = address.options.get("path")
    try:
        if path:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(address.timeout_seconds)
                unix.connect(path)
            return ok("connect", f"{path} accepts connections")
        return _tcp(address)
    except OSError as error:
        why = reason(error.strerror or str(error) or type(error).__name__)
        return unreachable(
            "connect",
            f"{address.where}: {why}",
            "is Redis running there, and does a firewall or NetworkPolicy let us?",
        )


def _tcp(address: Address) -> Finding:
    host, port = address.options.get("host", "localhost"), address.options.get("port", 6379)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        return unreachable(
            "connect", f"{host}: {reason(why or 'unknown')}", "is the name right, and known where this runs?"
        )
    start = time.perf_counter()
    with socket.create_connection((host, port), timeout=address.timeout_seconds) as connected:
        took_ms = (time.perf_counter() - start) * 1000
        peer = connected.getpeername()[0]
    others = f", one of {len(found)} addresses" if len(found) > 1 else ""
    return ok("connect", f"{address.where} is {peer}{others}, and accepts connections ({took_ms:.1f} ms)")


def login(connection: SyncConnection) -> Finding:
    """Log in (and shake hands, with TLS), and be answered."""
    user = connection.address.options.get("username") or "the default user"
    try:
        [reply] = connection.send([("PING",)])
    except Unavailable as error:
        return unreachable("login", reason(error.why), _login_hint(error.why))
    except DelayQError as error:
        return unreachable("login", str(error), "is that Redis at all?")
    if isinstance(reply, Exception):
        return unreachable("login", f"PING: {reply}", _login_hint(str(reply)))
    secret = "with a password" if connection.address.options.get("password") else "without a password"
    return ok("login", f"as {user}, {secret}")


def _login_hint(why: str) -> str:
    lower = why.lower()
    if "ssl" in lower or "certificate" in lower:
        return "spec.redis.tls: does the server speak TLS, and do its certificate and ours fit?"
    if any(word in lower for word in ("auth", "password", "wrongpass")):
        return "spec.redis.authSecretRef: is the Secret the right one, and current?"
    if "loading" in lower:
        return "Redis is reading its file: wait"
    if "timeout" in lower:
        return "it accepts connections and does not answer: is it stopped or overloaded, or does it want TLS?"
    return "does Redis speak TLS there, or something else listen? spec.redis.tls"


def latency(connection: SyncConnection) -> Finding:
    """Ping a hundred times."""
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
    """Compare the clocks. Redis' decides; this one only matters to people who read --at off it."""
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
            f"{said}: nothing starts early, for Redis' clock alone decides, and delays hold; "
            "but an instant read off a clock here (--at, due_ms) comes by that of Redis",
            "check NTP on both",
        )
    return ok("clock", said)

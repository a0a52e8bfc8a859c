"""Where Redis is and how to log in: from a URL, or from a document's spec.redis and its mounted secrets.

An address is that of one server, of a master with Sentinels, or of a Cluster. Connections are opened to one server
only: `at` returns the address of one server of the topology, `sentinels` those of the Sentinels.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import UnixDomainSocketConnection as BlockingUnixConnection
from redis.retry import Retry as BlockingRetry

from delayq.connection import url as urls
from delayq.connection.abrupt import TcpConnection, UnixConnection
from delayq.connection.login import ANONYMOUS, Login
from delayq.connection.place import Place
from delayq.connection.tls import BlockingTlsConnection, Tls, TlsConnection
from delayq.contract.files import SECRETS_DIR

if TYPE_CHECKING:
    from delayq.connection.url import Kind
    from delayq.contract import Redis

TIMEOUT_SECONDS = 5.0
HEALTH_CHECK_SECONDS = 30.0
MAX_CONNECTIONS = 20
READ_BYTES = 1 << 20  # a claim of 250 tasks arrives in one read
PROBES: Final = 3  # keepalive probes without a reply after which the kernel closes the connection
SHOWN: Final = 3  # servers that a message lists


@dataclass(frozen=True)
class Address:
    """What a connection needs. Secrets are read at each connect, and a repr never contains them."""

    places: tuple[Place, ...]  # the server; the Sentinels; some nodes of a Cluster
    kind: Kind = "standalone"
    master_name: str = ""  # as configured in the Sentinels
    database: int = 0
    login: Login = ANONYMOUS
    sentinel_login: Login = ANONYMOUS
    tls: Tls | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    health_check_seconds: float = HEALTH_CHECK_SECONDS
    max_connections: int = MAX_CONNECTIONS

    @classmethod
    def from_url(cls, url: str) -> Address:
        """Parse a URL, see url.py. InvalidDocument otherwise; its message does not quote the URL."""
        return cls(*urls.parse(url))

    @classmethod
    def of(cls, spec: Redis, secrets_dir: Path, *, url: str | None) -> Address:
        """Return the address of a document's queue. A `url` replaces spec.redis, except for spec.redis.timeoutSeconds.

        The document's password and certificate are never sent to a server that the document does not name. With a URL,
        TLS comes from the URL only, so that there is one source.
        """
        return (
            cls.from_spec(spec, secrets_dir)
            if url is None
            else replace(cls.from_url(url), timeout_seconds=float(spec.timeout_seconds))
        )

    @classmethod
    def from_spec(cls, spec: Redis, secrets_dir: Path) -> Address:
        """Return the address in spec.redis. InvalidDocument when a secret is not mounted."""
        kind, places = _places(spec)
        sentinel = spec.sentinel
        return cls(
            places,
            kind,
            master_name="" if sentinel is None else sentinel.master_name,
            database=spec.database,
            login=Login.of(spec.auth, secrets_dir),
            sentinel_login=Login.of(sentinel.auth if sentinel else None, secrets_dir),
            tls=Tls.of(spec.tls, secrets_dir),
            timeout_seconds=float(spec.timeout_seconds),
        )

    def patient(self, seconds: float) -> Address:
        """Return the same address with a longer timeout, for calls that wait on the server."""
        return replace(self, timeout_seconds=self.timeout_seconds + seconds)

    @property
    def is_cluster(self) -> bool:
        """Whether shards are on several servers, which can fail independently."""
        return self.kind == "cluster"

    @cached_property
    def where(self) -> str:
        """For messages: host:port, the path of a socket, or the Sentinels or nodes that name the servers."""
        shown = ", ".join([*map(str, self.places[:SHOWN]), *(["…"] if self.places[SHOWN:] else [])])
        if self.kind == "sentinel":
            return f"sentinel {self.master_name} at {shown}"
        return f"cluster at {shown}" if self.is_cluster else shown

    def at(self, place: Place) -> Address:
        """Return the address of one server of this topology: a master, a replica, or a node of a Cluster."""
        return replace(self, places=(place,), kind="standalone", master_name="", sentinel_login=ANONYMOUS)

    @property
    def sentinels(self) -> tuple[Address, ...]:
        """The addresses of the Sentinels: a login of their own, the same TLS, no databases."""
        return tuple(
            replace(self.at(place), login=self.sentinel_login, database=0)
            for place in self.places
            if self.kind == "sentinel"
        )

    def connection(self) -> redis.asyncio.Connection:
        """Return an asynchronous connection to the one server, not yet connected.

        It has no timeouts and retries of its own. AsyncConnection sets one timeout for a whole round trip, because
        redis-py would start a task for every write.
        """
        kinds = (TcpConnection, TlsConnection, UnixConnection)
        connection: redis.asyncio.Connection = self._made(
            kinds, socket_timeout=None, socket_read_size=READ_BYTES, retry=Retry(NoBackoff(), 0)
        )
        return connection

    def blocking_connection(self) -> redis.Connection:
        """Return a blocking connection to the one server, not yet connected. Each read and write has a timeout."""
        kinds = (redis.Connection, BlockingTlsConnection, BlockingUnixConnection)
        connection: redis.Connection = self._made(
            kinds, socket_timeout=self.timeout_seconds, retry=BlockingRetry(NoBackoff(), 0)
        )
        return connection

    def _made(self, kinds: tuple[Any, Any, Any], **options: Any) -> Any:  # noqa: ANN401 -- asynchronous or blocking
        plain, tls, unix = kinds
        if self.kind != "standalone":
            raise ValueError(f"{self.where}: expected the address of one server; call Address.at() first")
        options |= {
            "db": self.database,
            "credential_provider": self.login or None,
            "protocol": 2,
            "socket_connect_timeout": self.timeout_seconds,
            "driver_info": None,  # CLIENT SETINFO would need one more permission
        }
        (place,) = self.places
        if place.is_socket:
            return unix(path=place.host, **options)
        options |= {"host": place.host, "port": place.port, "socket_keepalive_options": self._keepalive()}
        return plain(**options) if self.tls is None else tls(tls=self.tls, **options)

    def _keepalive(self) -> dict[int, int]:
        """Have the kernel detect lost peers after about twice health_check_seconds."""
        seconds = max(1, int(self.health_check_seconds))
        wanted = {
            "TCP_KEEPIDLE": seconds,
            "TCP_KEEPINTVL": max(1, seconds // PROBES),
            "TCP_KEEPCNT": PROBES,
        }
        return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def secrets_dir() -> Path:
    """Return the directory of mounted secrets: $DELAYQ_SECRETS_DIR, or the one in which the operator mounts them."""
    return Path(os.environ.get("DELAYQ_SECRETS_DIR", SECRETS_DIR))


def _places(spec: Redis) -> tuple[Kind, tuple[Place, ...]]:
    if spec.sentinel is not None:
        return "sentinel", tuple(Place(node.host, node.port) for node in spec.sentinel.nodes)
    if spec.cluster is not None:
        return "cluster", tuple(Place(node.host, node.port) for node in spec.cluster.nodes)
    if spec.standalone is None:
        raise ValueError("spec.redis: expected one of standalone, sentinel, cluster")
    return "standalone", (Place(spec.standalone.host, spec.standalone.port),)

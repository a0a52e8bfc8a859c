"""Where Redis is and how to log in: from a URL, or from a document's spec.redis and its mounted secrets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from delayq.contract.files import secret_path
from delayq.contract.unsupported import REDIS
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import Redis

TIMEOUT_SECONDS = 5.0
_OPTIONS = frozenset({"host", "port", "db", "username", "password", "path", "connection_class"})
_EXPECTED = (
    "Redis URL: expected redis://user:password@host:6379/0, rediss://… or unix:///path, got something else; "
    "write / @ : # ? and % in a password as %2F %40 %3A %23 %3F and %25"
)
READ_BYTES = 1 << 20  # a claim of 250 tasks arrives in one read


@dataclass(frozen=True)
class Address:
    """What a connection needs; `options` are redis-py's names."""

    options: dict[str, Any] = field(repr=False)  # may hold a password
    timeout_seconds: float = TIMEOUT_SECONDS
    max_connections: int = 20

    @classmethod
    def from_url(cls, url: str) -> Address:
        """InvalidDocument otherwise; it quotes nothing: where a password holds / or @, any part may be some of it."""
        try:
            parsed: dict[str, Any] = dict(parse_url(url))
        except ValueError:
            parsed = {"not": "a URL"}
        if not all(name in _OPTIONS or name.startswith("ssl_") for name in parsed):
            raise InvalidDocument(_EXPECTED)
        return cls(parsed)

    @classmethod
    def of(cls, spec: Redis, secrets_dir: Path, *, url: str | None) -> Address:
        """Where a document's queue is; a `url` says where instead, and spec.redis.connection still says how."""
        if url is None:
            return cls.from_spec(spec, secrets_dir)
        seconds, most = spec.connection.timeout_seconds, spec.connection.max_connections
        return replace(cls.from_url(url), timeout_seconds=float(seconds), max_connections=most)

    @classmethod
    def from_spec(cls, spec: Redis, secrets_dir: Path) -> Address:
        """InvalidDocument when a secret is not mounted, or the topology is not served yet."""
        if spec.standalone is None:
            raise InvalidDocument(str(REDIS))
        options: dict[str, Any] = {
            "host": spec.standalone.host,
            "port": spec.standalone.port,
            "db": spec.database,
        }
        if spec.auth_secret_ref is not None:
            secret = spec.auth_secret_ref
            options["password"] = _secret(secrets_dir, secret.name, secret.password_key)
            if secret.username_key is not None:
                options["username"] = _secret(secrets_dir, secret.name, secret.username_key)
        if spec.tls is not None:
            options |= _tls(spec, secrets_dir)
        return cls(options, float(spec.connection.timeout_seconds), spec.connection.max_connections)

    @property
    def where(self) -> str:
        """host:port or a socket's path, for messages."""
        if "path" in self.options:
            return str(self.options["path"])
        return f"{self.options.get('host', 'localhost')}:{self.options.get('port', 6379)}"

    def connection(self) -> Connection:
        """Return an asynchronous connection, not yet connected.

        It has no time-outs and retries of its own: AsyncConnection sets one time-out around a whole round trip,
        because redis-py's own would start a task for every write.
        """
        options = dict(self.options)
        kind = options.pop("connection_class", Connection)
        connection: Connection = kind(
            **options,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=self.timeout_seconds,
            socket_read_size=READ_BYTES,
            retry=Retry(NoBackoff(), 0),
        )
        return connection


def _tls(spec: Redis, secrets_dir: Path) -> dict[str, Any]:
    tls = spec.tls
    if tls is None:
        return {}
    options: dict[str, Any] = {"connection_class": SSLConnection}
    if tls.ca_secret_ref is not None:
        options["ssl_ca_certs"] = str(_file(secrets_dir, tls.ca_secret_ref.name, tls.ca_secret_ref.key))
    if tls.client_cert_secret_ref is not None:
        cert = tls.client_cert_secret_ref
        options["ssl_certfile"] = str(_file(secrets_dir, cert.name, cert.cert_key))
        options["ssl_keyfile"] = str(_file(secrets_dir, cert.name, cert.key_key))
    return options


def _file(secrets_dir: Path, name: str, key: str) -> Path:
    path = secret_path(secrets_dir, name, key)
    if not path.is_file():
        raise InvalidDocument(f"Secret {name}: expected its key {key} as the file {path}, found none")
    return path


def _secret(secrets_dir: Path, name: str, key: str) -> str:
    return _file(secrets_dir, name, key).read_text().strip()

"""TLS: trusted authorities and client certificates, read at each connect, and connections that use them.

redis-py would also trust the system's authorities, keep one context for the lifetime of the connection object, and
always expect the host name it connected to.
"""

from __future__ import annotations

import hashlib
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import redis

from delayq.connection.abrupt import TcpConnection
from delayq.connection.login import Mounted, Unreadable
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.contract.store import Tls as TlsSpec


@dataclass(frozen=True, slots=True)
class Tls:
    """The files, and what the certificate of the server must match."""

    authority: Mounted | None = None  # None: the authorities of the system
    certificate: Mounted | None = None
    key: Mounted | None = None  # None: in the file of the certificate
    server_name: str | None = None  # None: the host of the connection
    verified: bool = True
    named: bool = True  # whether to check the name in the certificate

    @classmethod
    def of(cls, spec: TlsSpec | None, secrets_dir: Path) -> Tls | None:
        """Return the TLS of a document; InvalidDocument when a file is not mounted or not valid."""
        if spec is None:
            return None
        authority = Mounted.of(secrets_dir, spec.ca_secret_ref or spec.ca_config_map_ref)
        certificate = Mounted.of(secrets_dir, spec.cert_secret_ref)
        tls = cls(authority, certificate, Mounted.of(secrets_dir, spec.key_secret_ref), spec.server_name)
        try:
            tls.context()
        except ssl.SSLError as error:
            raise InvalidDocument(str(error.args[1])) from None
        return tls

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake; the ssl.SSLError names the invalid file.

        A new context is built only when the content of a file has changed.
        """
        try:
            read = [each.content() for each in (self.authority, self.certificate, self.key) if each]
        except Unreadable as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, str(error)) from None
        return _context(self, tuple(hashlib.sha256(content).digest() for content in read))


@lru_cache(maxsize=16)
def _context(tls: Tls, _digests: tuple[bytes, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verified and tls.named
    context.verify_mode = ssl.CERT_REQUIRED if tls.verified else ssl.CERT_NONE
    if tls.authority is None:
        context.load_default_certs()
    else:
        with _reading(tls.authority, "certificates, PEM"):
            context.load_verify_locations(cafile=tls.authority.path)
    if tls.certificate is not None:
        with _reading(tls.certificate, "a certificate that its key belongs to, PEM"):
            # Without a password argument, OpenSSL would prompt at the terminal.
            key = None if tls.key is None else tls.key.path
            context.load_cert_chain(tls.certificate.path, key, password="")
    return context


@contextmanager
def _reading(file: Mounted, expected: str) -> Iterator[None]:
    """Add the file to the error: OpenSSL does not name it."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        message = f"{file.what} {file.path}, with {expected}; got {why}"
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, message) from None


class TlsConnection(TcpConnection):
    """Connects with TLS, with the current content of the files."""

    def __init__(self, *, tls: Tls, **options: Any) -> None:  # noqa: ANN401 -- redis-py's
        """`options`: those of a connection without TLS."""
        self._tls = tls
        super().__init__(**options)

    def _connection_arguments(self) -> dict[str, Any]:
        name = self._tls.server_name or self.host
        return {**super()._connection_arguments(), "ssl": self._tls.context(), "server_hostname": name}


class BlockingTlsConnection(redis.Connection):
    """As TlsConnection, blocking."""

    def __init__(self, *, tls: Tls, **options: Any) -> None:  # noqa: ANN401 -- redis-py's
        """`options`: those of a connection without TLS."""
        self._tls = tls
        super().__init__(**options)

    def _connect(self) -> socket.socket:
        context = self._tls.context()
        plain: socket.socket = super()._connect()
        try:
            return context.wrap_socket(plain, server_hostname=self._tls.server_name or self.host)
        except BaseException:
            plain.close()
            raise

"""Throw-away certificate authorities: certificates for a server on this machine and for who connects to it.

Not here: certificates that last, or that others trust.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import trustme

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("localhost", "127.0.0.1", "redis.test")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


@dataclass
class Tls:
    """One authority, the server's files and the client's. `renew` writes others to the same places."""

    dir: Path
    names: tuple[str, ...] = NAMES
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        self.ca = self.dir / "ca.crt"
        self.server = Pair(self.dir / "server.crt", self.dir / "server.key")
        self.client = Pair(self.dir / "client.crt", self.dir / "client.key")
        self.renew()

    def renew(self, authority: trustme.CA | None = None) -> None:
        """Issue all again, by the same authority or by another; a server reads them at a reload."""
        self.authority = authority or self.authority
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.issue(self.server, *self.names)
        self.issue(self.client, "client.test")

    def issue(self, pair: Pair, *names: str) -> None:
        """Write a certificate for some names."""
        issued = self.authority.issue_cert(*names)
        issued.private_key_pem.write_to_path(str(pair.key))
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def settings(self) -> dict[str, str]:
        """Redis' own, but for the port."""
        return {
            "tls-cert-file": str(self.server.cert),
            "tls-key-file": str(self.server.key),
            "tls-ca-cert-file": str(self.ca),
            "tls-auth-clients": "yes",
            "tls-replication": "yes",
            "tls-cluster": "yes",
        }

    def options(self) -> dict[str, str | bool]:
        """Arguments of redis-py for a client."""
        return {
            "ssl": True,
            "ssl_ca_certs": str(self.ca),
            "ssl_certfile": str(self.client.cert),
            "ssl_keyfile": str(self.client.key),
        }

    def query(self) -> str:
        """The same at the end of a rediss:// URL."""
        return urlencode({name: value for name, value in self.options().items() if name != "ssl"})

"""What a client needs of a server with TLS and users, as mounted Secrets; and having it connect anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers import PASSWORD, USER
from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RedisServer
    from tests.topologies.certificates import Tls

LOGIN = {"usernameSecretRef": {"name": "login"}, "passwordSecretRef": {"name": "login"}}
SHOWN = {
    "caSecretRef": {"name": "certs"},
    "certSecretRef": {"name": "certs"},
    "keySecretRef": {"name": "certs"},
}


def mounted(secrets: Path, tls: Tls, *, authority: bytes | None = None) -> None:
    """Mount what a client of this server needs."""
    mount(secrets, "login", username=USER.encode(), password=f"{PASSWORD}\n".encode())
    mount(
        secrets,
        "certs",
        ca_crt=authority or tls.ca.read_bytes(),
        tls_crt=tls.client.cert.read_bytes(),
        tls_key=tls.client.key.read_bytes(),
    )


def cut(server: RedisServer) -> None:
    """Close every connection, so that clients have to connect anew."""
    with server.client() as redis:
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

"""The host and port of a server, or its Unix socket. Not here: the login."""

from __future__ import annotations

from typing import Final, NamedTuple

PORT: Final = 6379
SENTINEL_PORT: Final = 26_379
SOCKET: Final = 0  # instead of a port: the host is a Unix socket's path


class Place(NamedTuple):
    """Where a server listens."""

    host: str
    port: int = PORT

    @property
    def is_socket(self) -> bool:
        """Whether it is a Unix socket, with its path in `host`."""
        return self.port == SOCKET

    def __str__(self) -> str:
        """For messages. IPv6 addresses are in brackets."""
        if self.is_socket:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

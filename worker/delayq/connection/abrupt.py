"""Asynchronous connections that close immediately, without sending what is left in their buffers."""

from __future__ import annotations

from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection


class Abrupt(AbstractConnection):
    """Closes without a TLS shutdown, and discards unsent data.

    redis-py waits until all data is sent. A server that hangs reads neither the data nor the TLS shutdown: the socket
    would stay open, and the server would execute the rest when it resumes.
    """

    async def disconnect(self, nowait: bool = False, *args: Any, **named: Any) -> None:  # noqa: ANN401, FBT001, FBT002 -- redis-py's
        """With `nowait`, discard unsent data."""
        if nowait and self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(nowait, *args, **named)


class TcpConnection(Abrupt, Connection):
    """TCP without TLS."""


class UnixConnection(Abrupt, UnixDomainSocketConnection):
    """A Unix socket."""

"""Asynchronous connections that can be left at once, whatever has not been sent."""

from __future__ import annotations

from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection


class Abrupt(AbstractConnection):
    """Leaves without a good-bye where redis-py closes, which waits until all is sent, or the good-bye of TLS.

    A server that hangs takes neither: the socket would stay open, and what is left would be done once it is back.
    """

    async def disconnect(self, nowait: bool = False, *args: Any, **named: Any) -> None:  # noqa: ANN401, FBT001, FBT002 -- redis-py's
        """With `nowait`, what was not sent is thrown away."""
        if nowait and self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(nowait, *args, **named)


class TcpConnection(Abrupt, Connection):
    """Without TLS."""


class UnixConnection(Abrupt, UnixDomainSocketConnection):
    """To a socket of this machine."""

"""Connections to an HTTP service, and the repeat of a request that met a connection as the service closed it.

A service closes connections that are idle for too long. A request that is sent at that moment fails although the
service is healthy, and would cost an attempt. So a request is repeated, once and on a new connection, when a *reused*
connection ends before the first byte of an answer. Any byte proves that the service worked on the request: such a
failure is not repeated, nor is one of a new connection. aiohttp itself repeats GET, but not POST, and counts no bytes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

KEEPALIVE_SECONDS: Final = 4  # many servers close idle connections after 5 s
ENDED: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)


class Pool(aiohttp.TCPConnector):
    """Connections that know whether they are reused, and whether a byte came back."""

    def __init__(self, limit: int) -> None:
        """`limit` bounds the connections, idle ones included."""
        super().__init__(limit=limit, limit_per_host=limit, keepalive_timeout=KEEPALIVE_SECONDS)
        self._factory = partial(_Protocol, loop=self._loop)  # type: ignore[assignment]  # partial is invariant

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 -- aiohttp's signature
    ) -> Connection:
        """Return an idle connection or a new one; for a repeated request, close idle ones until it is new.

        An idle connection on which the service sent something has no place for the answer to this request.
        """
        request = cast("Request", req)
        repeated, request.protocol = request.protocol is not None, None
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = cast("_Protocol", connection.protocol)
            if not (protocol.used and (repeated or protocol.should_close)):
                break
            connection.close()
        request.protocol = protocol
        protocol.reused, protocol.used, protocol.answered = protocol.used, True, False
        return connection


class Request(aiohttp.ClientRequest):
    """A request with the connection on which it was last sent."""

    protocol: _Protocol | None = None


class _Protocol(ResponseHandler):
    """One connection."""

    used = False  # a request was sent on it
    reused = False  # another request was sent on it before the current one
    answered = False  # a byte came since the current request

    def data_received(self, data: bytes) -> None:
        self.answered = True
        super().data_received(data)


async def repeat(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request, a second time if a reused connection ended before the first byte of an answer: a middleware."""
    try:
        return await send(request)
    except ENDED:
        protocol = cast("Request", request).protocol
        if protocol is None or not protocol.reused or protocol.answered:
            raise
        await request.close()  # its body may still be on its way to the old connection
        return await send(request)

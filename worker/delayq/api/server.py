"""The HTTP server: uvicorn, with a bound on the time and the size of what it receives before a request begins.

uvicorn has neither: bytes that trickle in keep a connection open for ever. app.py bounds bodies.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from delayq.api.app import COMPLETE, HEAD_BYTES

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from delayq.api.app import Api

HEAD_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 75  # as long as clients keep idle connections, or longer
MOST_CONNECTIONS: Final = 2_000
LINGER_SECONDS: Final = 1.0
"""After a signal: each answer closes its connection, and idle ones may bring a last request."""
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class Bounded(HttpToolsProtocol):
    """A connection whose request lines and headers arrive in time and are not too large."""

    _deadline: asyncio.TimerHandle | None = None
    _head = 0  # bytes since it began; -1 after it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(FULL)
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._head_ends()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._head >= 0:
            self._head += len(data)
        super().data_received(data)
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(LARGE)

    def on_message_begin(self) -> None:
        """Begin a request line."""
        if self._deadline is None:
            self._await_head()
        self._head = max(self._head, 0)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin the request."""
        self._head_ends()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Mark the request: its body is there."""
        self.scope[COMPLETE] = True  # type: ignore[typeddict-unknown-key] # of ours
        super().on_message_complete()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

    def _head_ends(self) -> None:
        self._head = -1
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._await_head()  # the request before this one is still being answered
        else:
            self.transport.abort()

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also one whose client does not read its answer."""
        self.transport.abort()


class Server:
    """Serves an Api until stop()."""

    def __init__(
        self, api: Api, listening: Sequence[socket.socket], tls: ssl.SSLContext | None = None
    ) -> None:
        """`listening` are bound sockets. Without `tls`, they serve plain HTTP."""
        self._api, self._sockets, self._tls = api, list(listening), tls
        config = uvicorn.Config(
            api,
            http=Bounded,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # nothing depends on the caller's address
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
        )
        self._server = uvicorn.Server(config)

    async def run(self, stop: asyncio.Event, seconds: float) -> None:
        """Serve until `stop`; requests may end within `seconds` after it."""
        config = self._server.config
        config.timeout_graceful_shutdown = max(1, round(seconds))
        config.load()
        config.ssl = self._tls  # uvicorn takes files only, and reads them once
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(self._sockets)
        ticking = asyncio.create_task(self._server.main_loop())
        try:
            await stop.wait()
            self._api.stopping = True
            if self._server.server_state.connections:
                await asyncio.sleep(LINGER_SECONDS)
        finally:
            self._server.should_exit = True
            await ticking
            await self._server.shutdown(self._sockets)

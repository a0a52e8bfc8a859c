"""The HTTP server: uvicorn, with a bound on the time and the size of what it receives before a request begins.

uvicorn has neither: bytes that trickle in keep a connection open for ever. app.py bounds bodies.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from delayq.api.app import COMPLETE
from delayq.api.heads import HEAD_BYTES
from delayq.api.models import dumps
from delayq.api.problems import CONTENT_TYPE, ApiError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from delayq.api.app import Api

HEAD_SECONDS: Final = 10.0
"""Also for a TLS handshake."""
READ_SECONDS: Final = 30.0
"""How long an answer may wait for a client that reads slowly, or not at all."""
IDLE_SECONDS: Final = 75  # as long as clients keep idle connections, or longer
MOST_CONNECTIONS: Final = 2_000
LINGER_SECONDS: Final = 1.0
"""After a signal: each answer closes its connection, and idle ones may bring a last request."""


def _last(error: ApiError) -> bytes:
    """Return an answer without a request: the last one of its connection."""
    content = dumps(error.view())
    head = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        f"content-type: {CONTENT_TYPE}",
        f"content-length: {len(content)}",
        *(f"{name.lower()}: {value}" for name, value in error.headers.items()),
        "connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content


FULL: Final = _last(
    ApiError("busy", f"{MOST_CONNECTIONS:,} connections are open already: connect again later")
)
LARGE: Final = _last(
    ApiError(
        "header-too-large", f"expected at most {HEAD_BYTES:,} bytes of request line and headers, got more"
    )
)
MALFORMED: Final = _last(ApiError("invalid-request", "expected an HTTP/1.1 request, got something else"))
_MALFORMED_TARGET: Final = re.compile(rb"#|%(?![0-9A-Fa-f]{2})")


class Bounded(HttpToolsProtocol):
    """A connection whose request lines and headers arrive in time and are not too large."""

    _deadline: asyncio.TimerHandle | None = None  # of a head
    _unread: asyncio.TimerHandle | None = None  # deadline of an answer
    _heading = True  # until the headers of a request are complete
    _loose = 0  # bytes since the request began, or since the last part of its body

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
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came. Line breaks between two requests, which the parser skips, do not keep the connection."""
        if self._heading and self._deadline is None:
            self._await_head()
        self._loose += len(data)
        super().data_received(data)
        if self._loose > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(LARGE)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers, which follow a chunked body, are ignored: no check has seen them."""
        if self._heading:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request."""
        self._head_ends()
        self._heading, self._loose = False, 0
        if _MALFORMED_TARGET.search(self.url):
            raise ValueError("malformed target")  # the parser stops, and send_400_response() answers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which app.py counts."""
        self._loose = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, whose body is there; another one may follow in the same data."""
        self._heading, self._loose = True, 0
        self.scope[COMPLETE] = True  # type: ignore[typeddict-unknown-key] # of ours
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Wait for a client that does not read its answers."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's signature
        """Refuse what is no HTTP request."""
        self._refuse(MALFORMED)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

    def _head_ends(self) -> None:
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
        """Close the connection with an answer, unless the client would take it for that of another request."""
        cycle: RequestResponseCycle | None = self.cycle
        answering = cycle is not None and not cycle.response_complete
        begun = self._heading or self.pipeline or (cycle is not None and cycle.response_started)
        if answering and begun:
            self.transport.abort()
        else:
            self.transport.write(answer)
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer by HTTP/1.1 a client that offers another protocol, as RFC 9110 allows: that is nothing to log."""

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
            log_level="error",  # a malformed request is answered, not logged
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
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = [await self._listen(each) for each in self._sockets]
        self._server.started = True
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

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        """Listen as uvicorn's startup(), which has no bound on a TLS handshake, and takes certificates as files."""
        return await asyncio.get_running_loop().create_server(
            partial(Bounded, self._server.config, self._server.server_state, {}),
            sock=listening,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HEAD_SECONDS,
            backlog=self._server.config.backlog,
        )

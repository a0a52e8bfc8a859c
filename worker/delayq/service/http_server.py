"""The HTTP server of probes and scrapes: GET of a few paths, on one address or on every address of IPv4 and IPv6.

Not here: bodies of requests, TLS, compression. aiohttp has all of it, at a quarter of an idle process' memory: see
docs/contributing/decisions/0046-processes-import-what-they-run.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    Query = Mapping[str, list[str]]
    Handler = Callable[[Query], Awaitable["Response"]]

log = logging.getLogger(__name__)

EVERYWHERE: Final = "*"
"""As a host: `0.0.0.0` would be IPv4 only, `::` IPv6 only, and a pod may have addresses of either kind or both."""
TEXT: Final = "text/plain; charset=utf-8"
MAX_HEAD_BYTES: Final = 16_384
MAX_CONNECTIONS: Final = 64  # every pod of the cluster may connect, and each connection takes up to 50 KB
IDLE_SECONDS: Final = (
    75.0  # between requests: Prometheus scrapes every minute by default, on a connection that it keeps
)
HEAD_SECONDS: Final = 5.0  # for a whole head, and for a client to read its response
CLOSE_SECONDS: Final = 1.0  # for responses that are under way
PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Response(NamedTuple):
    """What a handler returns."""

    body: str | bytes
    status: int = 200
    content_type: str = TEXT

    def encoded(self, *, head_only: bool, keep: bool) -> bytes:
        """Return the bytes to send; a HEAD request gets the head of the reply to GET."""
        body = self.body.encode() if isinstance(self.body, str) else self.body
        head = (
            f"HTTP/1.1 {self.status} {PHRASES[self.status]}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        return head.encode() + (b"" if head_only else body)


class Request(NamedTuple):
    """The used part of a request's head."""

    method: str
    path: str
    query: Query
    keep: bool
    """Whether the connection can serve another request."""

    @classmethod
    def parse(cls, head: bytes) -> Request:
        """Return the request; ValueError when it is not HTTP/1."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        if version not in {"HTTP/1.0", "HTTP/1.1"}:
            raise ValueError(version)
        fields = {
            name.strip().lower(): text.strip().lower() for name, _, text in (x.partition(":") for x in lines)
        }
        # Bodies are not read, so what follows a head with one is not the next request.
        body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
        keep = version == "HTTP/1.1" and fields.get("connection") != "close" and not body
        url = urlsplit(target)
        return cls(method, url.path, parse_qs(url.query, keep_blank_values=True), keep)


class HttpServer:
    """Answers until it is closed."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        """`routes` are the handlers by path; start() listens."""
        self._routes = routes
        self._servers: list[asyncio.Server] = []
        self._connections = set[asyncio.Task[object]]()
        self._waiting = dict[
            asyncio.Task[object], None
        ]()  # those that wait for their client, the longest first
        self._answering = set[asyncio.Task[object]]()

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes a free one, the same for IPv4 and IPv6."""
        where = {"sock": _everywhere(port)} if host == EVERYWHERE else {"host": host, "port": port}
        await self._listen(**where)
        return int(self._servers[0].sockets[0].getsockname()[1])

    async def _listen(self, **where: Any) -> None:  # noqa: ANN401 -- as start_server takes it
        self._servers.append(await asyncio.start_server(self._serve, limit=MAX_HEAD_BYTES, **where))

    async def share(self, other: HttpServer) -> None:
        """Listen on the sockets of another server, too: each connection goes to the one that accepts it first."""
        for listening in [each for server in list(other._servers) for each in server.sockets]:
            await self._listen(sock=socket.socket(fileno=os.dup(listening.fileno())))

    async def close(self) -> None:
        """Stop listening, give responses under way a second, and close every connection."""
        while self._servers:
            self._servers.pop().close()
        if self._answering:
            await asyncio.wait(self._answering, timeout=CLOSE_SECONDS)
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=CLOSE_SECONDS)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        if not self._has_room():
            writer.transport.abort()
            return
        self._connections.add(task)
        writer.transport.set_write_buffer_limits(0)  # drain() returns when the kernel has all of the response
        try:
            # A client may disconnect or stop sending at any time, and others cancel this task. asyncio logs an error
            # for a connection whose task ends as cancelled (Python 3.11).
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
                idle_seconds = HEAD_SECONDS
                while await self._exchange(task, reader, writer, idle_seconds):
                    idle_seconds = IDLE_SECONDS
        finally:
            self._connections.discard(task)
            writer.transport.abort()  # close() would wait for a client that does not read

    def _has_room(self) -> bool:
        """Whether there is room for a connection; a full server closes the one that waits longest for its client."""
        if len(self._connections) >= MAX_CONNECTIONS and self._waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._connections.discard(oldest)
            oldest.cancel()
        return len(self._connections) < MAX_CONNECTIONS

    @contextmanager
    def _for_client(self, task: asyncio.Task[object]) -> Iterator[None]:
        self._waiting[task] = None
        try:
            yield
        finally:
            self._waiting.pop(task, None)  # a full server may have closed it

    async def _exchange(
        self, task: asyncio.Task[object], reader: StreamReader, writer: StreamWriter, idle_seconds: float
    ) -> bool:
        """Answer one request; returns whether there may be another."""
        request, response = None, Response("malformed request\n", 400)
        try:
            with self._for_client(task):
                head = await _head(reader, idle_seconds)
            request = Request.parse(head[:-4])
        except asyncio.LimitOverrunError:
            response = Response("request too large\n", 431)
        except ValueError:
            pass
        self._answering.add(task)
        try:
            if request is not None:
                response = await self._answer(request)
            keep = request is not None and request.keep and bool(self._servers)
            if writer.is_closing():
                return False
            head_only = request is not None and request.method == "HEAD"
            writer.write(response.encoded(head_only=head_only, keep=keep))
            with self._for_client(task):
                async with asyncio.timeout(HEAD_SECONDS):
                    await writer.drain()
        finally:
            self._answering.discard(task)
        return keep

    async def _answer(self, request: Request) -> Response:
        handler = self._routes.get(request.path)
        if handler is None:
            return Response("not found\n", 404)
        if request.method not in {"GET", "HEAD"}:
            return Response("method not allowed\n", 405)
        try:
            return await handler(request.query)
        except Exception:
            log.exception("request_failed", extra={"fields": {"path": request.path}})
            return Response("internal error\n", 500)


async def _head(reader: StreamReader, idle_seconds: float) -> bytes:
    """Read a request's head, whose first byte may come after this time."""
    async with asyncio.timeout(idle_seconds) as limit:
        first = await reader.readexactly(1)
        limit.reschedule(min(limit.when() or 0, asyncio.get_running_loop().time() + HEAD_SECONDS))
        return first + await reader.readuntil(b"\r\n\r\n")


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))  # a kernel without IPv6

"""Servers on the loopback for the tests of http handlers: well-behaved ones and others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from delayq.contract import HttpHandler as HttpSpec
from delayq.handlers.http import HttpHandler

from tests.unit.handlers.support import NO_SECRETS_DIR, PATIENCE_SECONDS, document

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A real aiohttp server that keeps every request and gives the set answer, 204 by default."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = []
        self.methods: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.url = ""
        self._peers: set[object] = set()

    @property
    def connections(self) -> int:
        return len(self._peers)

    @classmethod
    @asynccontextmanager
    async def listening(cls, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        receiver = cls()
        runner = web.ServerRunner(web.Server(receiver._answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        receiver.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}/cancel"
        try:
            yield receiver
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self._peers.add(request.transport)
        self.methods.append(request.method)
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        return self.answers.pop(0) if self.answers else web.Response(status=204)


@asynccontextmanager
async def hostile(script: Script, *, after: bytes = b"\r\n\r\n") -> AsyncIterator[str]:
    """The URL of a server that speaks as scripted once it has read so far, by default a request's head."""
    conversations: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(after)
            await script(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*filter(None, conversations))


@asynccontextmanager
async def http_handler(
    url: str, secrets_dir: Path | None = None, *, timeout_seconds: float = PATIENCE_SECONDS, **spec: object
) -> AsyncIterator[HttpHandler]:
    http = document({"http": {"url": url} | spec}).spec.handler.http
    assert isinstance(http, HttpSpec)
    secrets_dir = secrets_dir or Path(NO_SECRETS_DIR)
    handler = HttpHandler(http, timeout_seconds=timeout_seconds, secrets_dir=secrets_dir)
    await handler.start()
    try:
        yield handler
    finally:
        await handler.close()

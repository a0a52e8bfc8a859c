"""A proxy before the API server that can misbehave: it freezes what is open, or refuses everything.

Plain HTTP on our side, so that it can read and answer; TLS on the other. One connection there for each one here.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.cluster.harness import kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

HEAD: Final = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) \S+ HTTP/1\.1\r\n")
REFUSAL: Final = "HTTP/1.1 {code} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CHUNK: Final = 1 << 16


@dataclass
class Proxy:
    """Start it with Proxy.start(…); it lives in a thread."""

    upstream: str
    authority: Path
    port: int = 0
    requests: list[float] = field(default_factory=list)
    """When, by time.monotonic()."""
    refuses: int = 0
    """The status that everything is answered with; 0 for none."""
    _passes: list[asyncio.Event] = field(default_factory=list)
    """Of each open connection: bytes pass while it is set."""
    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @classmethod
    def start(cls, kubeconfig_path: Path) -> Proxy:
        """A proxy before the cluster of a kubeconfig."""
        cluster = kubeconfig.cluster_of(kubeconfig_path)
        proxy = cls(cluster["server"], cluster["certificate-authority"])
        proxy._thread = threading.Thread(target=proxy._loop.run_forever, daemon=True)
        proxy._thread.start()
        asyncio.run_coroutine_threadsafe(proxy._listen(), proxy._loop).result(10)
        return proxy

    def through(self, kubeconfig_path: Path) -> Path:
        """The same kubeconfig, but through this proxy."""
        token = re.search(r"token: (\S+)", kubeconfig_path.read_text())
        assert token is not None
        path = kubeconfig_path.with_suffix(f".{self.port}.kubeconfig")
        return kubeconfig.write(path, cluster={"server": f"http://127.0.0.1:{self.port}"}, token=token[1])

    def stop(self) -> None:
        async def end() -> None:
            self._server.close()
            # Nothing is cancelled: a TLS connection whose handshake is cancelled can keep its socket.
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for writer in self._writers:
                    writer.transport.abort()
                for passes in self._passes:
                    passes.set()
                await asyncio.wait(tasks)
            for _ in range(3):  # turns of the loop, in which the transports let go of their sockets
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join(10)
        self._loop.close()

    def freeze(self) -> int:
        """Let nothing through open connections any more, for ever; how many. New ones work."""

        async def freeze() -> int:
            for passes in self._passes:
                passes.clear()
            return len(self._passes)

        return asyncio.run_coroutine_threadsafe(freeze(), self._loop).result(10)

    def refuse(self, code: int) -> None:
        """Answer everything with this status, and break what is open."""

        async def hang_up() -> None:
            for writer in list(self._writers):
                writer.close()

        self.refuses = code
        asyncio.run_coroutine_threadsafe(hang_up(), self._loop).result(10)

    def accept(self) -> None:
        self.refuses = 0

    async def _listen(self) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(OSError):
                if self.refuses:
                    await self._refuse(reader, writer)
                else:
                    await self._forward(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note(await reader.read(CHUNK))
        writer.write(REFUSAL.format(code=self.refuses).encode())
        await writer.drain()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = urlsplit(self.upstream)
        context = ssl.create_default_context(cafile=self.authority)
        far_reader, far_writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
        passes = asyncio.Event()
        passes.set()
        self._passes.append(passes)
        there = asyncio.create_task(self._pipe(reader, far_writer, passes))
        back = asyncio.create_task(self._pipe(far_reader, writer, passes))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            self._passes.remove(passes)
            # Closed, a TLS connection waits for the other side's word, which the loop may not live to hear.
            far_writer.transport.abort()

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event
    ) -> None:
        with suppress(OSError, ssl.SSLError):
            while chunk := await reader.read(CHUNK):
                self._note(chunk)
                await passes.wait()
                writer.write(chunk)
                await writer.drain()

    def _note(self, chunk: bytes) -> None:
        if HEAD.match(chunk):  # an answer begins otherwise
            self.requests.append(time.monotonic())

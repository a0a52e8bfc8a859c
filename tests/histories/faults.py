"""A proxy that loses requests and replies, and faults of processes and of Redis, as a seed says."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from random import Random

    from tests.servers import RedisServer

CUTS: Final = ("request_cut", "reply_lost", "request_late", "request_slow")


@dataclass
class Proxy:
    """Between delayq and Redis. Of each request it decides what becomes of it.

    `request_cut`: half of it arrives. `reply_lost`: Redis executes it, and its reply is dropped. `request_late`: its
    caller is cut off, and Redis executes it later. After all three, the connection ends.
    """

    server: RedisServer
    random: Random
    share: float = 0.0  # of requests that it treats badly
    kinds: tuple[str, ...] = CUTS
    faults: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: WeakSet[asyncio.StreamWriter] = field(default_factory=WeakSet)
    _listener: asyncio.Server | None = None

    async def open(self) -> str:
        """Listen; returns the URL."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return self.server.url.replace(f":{self.server.port}/", f":{port}/")

    async def close(self) -> None:
        """Close every connection, when late requests have arrived."""
        assert self._listener
        self._listener.close()
        late = [task for task in self._tasks if task.get_name() == "late"]
        await asyncio.gather(*late, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # which closes their sockets

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            streams = await asyncio.open_connection("127.0.0.1", self.server.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(streams[1])
        link = Link(self, reader, writer, *streams)
        self._spawn(link.replies())
        self._spawn(link.requests())

    def draw(self) -> str:
        """What becomes of the next request."""
        return self.random.choice(self.kinds) if self.random.random() < self.share else ""


@dataclass
class Link:
    """One connection through the proxy."""

    proxy: Proxy
    requests_in: asyncio.StreamReader
    replies_out: asyncio.StreamWriter
    replies_in: asyncio.StreamReader
    requests_out: asyncio.StreamWriter
    loses: bool = False  # the next reply

    async def requests(self) -> None:
        with suppress(OSError):
            while data := await self.requests_in.read(1 << 16):
                fault = self.proxy.draw()
                self.proxy.faults.update([fault] if fault else [])
                if fault == "request_late":
                    self.replies_out.transport.abort()
                    self.proxy._spawn(self.late(data), "late")
                    return
                self.loses = fault == "reply_lost"
                if fault == "request_slow":
                    await asyncio.sleep(self.proxy.random.random() * 0.1)
                self.requests_out.write(data[: len(data) // 2] if fault == "request_cut" else data)
                await self.requests_out.drain()
                if fault == "request_cut":
                    break
        self.end()

    async def late(self, data: bytes) -> None:
        with suppress(OSError):
            await asyncio.sleep(self.proxy.random.random() * 0.4)
            self.requests_out.write(data)
            await self.requests_out.drain()
            await asyncio.sleep(0.05)
        self.requests_out.transport.abort()

    async def replies(self) -> None:
        with suppress(OSError):
            while data := await self.replies_in.read(1 << 16):
                if self.loses:
                    break
                self.replies_out.write(data)
                await self.replies_out.drain()
        self.end()

    def end(self) -> None:
        self.replies_out.transport.abort()
        if not self.requests_out.is_closing():
            self.requests_out.close()

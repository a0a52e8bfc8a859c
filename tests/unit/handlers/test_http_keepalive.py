"""http handlers and connections that the service ends: no attempt is lost by it, and nothing runs a third time."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import pytest
from delayq import Verdict
from delayq.contract.check import HttpCheck as HttpCheckSpec
from delayq.errors import Retry
from delayq.recovery.checks.http import HttpCheck

from tests.unit.handlers.receivers import http_handler
from tests.unit.handlers.support import PATIENCE_SECONDS, a_task

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator
    from pathlib import Path

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"verdict": "complete"}'
HALF = b"HTTP/1.1 200 OK\r\nContent-Le"
LINGER_NOT = struct.pack("ii", 1, 0)  # close() sends RST instead of FIN


class Service:
    """Answers as many requests of each connection as asked, and ends the connection at the next one."""

    def __init__(self, *, answers: int = 1, last_words: bytes = b"", reset: bool = False) -> None:
        self.answers, self.last_words, self.reset = answers, last_words, reset
        self.requests = self.connections = 0
        self.meeting: asyncio.Barrier | None = None
        self.writers: list[StreamWriter] = []
        self.silent = False  # on new connections
        self.url = ""
        self._conversations: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Service]:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that a body does not fit
        server = await asyncio.start_server(self._serve, sock=listener)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        try:
            yield self
        finally:
            server.close()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*self._conversations)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        self._conversations.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            for _ in range(self.answers):
                await reader.readexactly(await self._head(reader))
                if self.meeting is not None:
                    await self.meeting.wait()
                writer.write(OK)
                self.writers.append(writer)
            await self._head(reader)
            writer.write(self.last_words)
            await writer.drain()
        if self.reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            writer.transport.abort()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _head(self, reader: StreamReader) -> int:
        """Read a request's head; returns the length of the body that follows."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        if self.silent and self.connections > 1:
            await reader.read()  # until the client leaves
        return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("size", [2, 1_000_000])
async def test_a_reused_connection_that_ends_unanswered_costs_no_attempt(*, reset: bool, size: int) -> None:
    """Closed or reset, before or after the whole body was sent: the request arrives on a new connection."""
    async with Service(reset=reset).listening() as service, http_handler(service.url) as handler:
        await handler.call(a_task(b"{}"))
        await handler.call(a_task(b"x" * size))
    assert (service.requests, service.connections) == (3, 2)


async def test_the_second_try_takes_no_connection_that_may_end_too() -> None:
    """After a receiver's restart every idle connection fails: the request is sent twice, and not once more for each."""
    service = Service()
    async with service.listening(), http_handler(service.url, maxConnections=4) as handler:
        service.meeting = asyncio.Barrier(4)
        await asyncio.gather(*(handler.call(a_task(b"{}")) for _ in range(4)))
        service.meeting = None
        await handler.call(a_task(b"{}"))
    assert (service.requests, service.connections) == (6, 5)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_receiver_that_ends_after_reading_is_asked_twice_at_most(*, reset: bool) -> None:
    """A payload that kills the receiver: the second failure is on a new connection, and costs an attempt."""
    async with Service(reset=reset).listening() as service, http_handler(service.url) as handler:
        await handler.call(a_task(b"{}"))
        service.answers = 0
        with pytest.raises(Retry) as retry:
            await handler.call(a_task(b"{}"))
        assert (retry.value.charge, service.requests) == (True, 3)
        with pytest.raises(Retry):  # on a new connection at once: once only
            await handler.call(a_task(b"{}"))
    assert service.requests == 4


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("last_words", [b"H", HALF])
async def test_a_byte_of_an_answer_proves_that_the_receiver_worked_on_the_task(
    *, reset: bool, last_words: bytes
) -> None:
    service = Service(last_words=last_words, reset=reset)
    async with service.listening(), http_handler(service.url) as handler:
        await handler.call(a_task(b"{}"))
        with pytest.raises(Retry):
            await handler.call(a_task(b"{}"))
    assert service.requests == 2


async def test_both_tries_share_one_time_limit() -> None:
    service = Service()
    async with service.listening(), http_handler(service.url, timeout_seconds=0.2) as handler:
        await handler.call(a_task(b"{}"))
        service.silent = True
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(Retry, match=r"no answer within 0\.2 s"):
                await handler.call(a_task(b"{}"))
    assert (service.requests, service.connections) == (3, 2)


async def test_an_unsolicited_answer_is_not_the_next_tasks() -> None:
    """A service that answers twice, or says 408 as it closes an idle connection."""
    service = Service(answers=2)
    async with service.listening(), http_handler(service.url) as handler:
        await handler.call(a_task(b"{}"))
        service.writers[0].write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        for _ in range(3):  # the loop looks at its sockets, and runs what they call
            await asyncio.sleep(0)
        await handler.call(a_task(b"{}"))
    assert (service.requests, service.connections) == (2, 2)


async def test_a_check_is_asked_again_too(tmp_path: Path) -> None:
    service = Service()
    async with service.listening():
        spec = HttpCheckSpec(url=service.url)
        check = HttpCheck(spec, connections=8, timeout_seconds=PATIENCE_SECONDS, secrets_dir=tmp_path)
        await check.start()
        answers = [await check.ask(a_task(b"{}")) for _ in range(3)]
        await check.close()
    assert {answer.verdict for answer in answers} == {Verdict.COMPLETE}
    assert service.requests == 5

"""http handlers against receivers that misbehave: every task is settled, in bounded time and memory."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from delayq.errors import Bury, Retry
from delayq.handlers import http

from tests.unit.handlers.receivers import hostile, http_handler
from tests.unit.handlers.support import PATIENCE_SECONDS, a_task

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

HEAD = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n"
MEGABYTES = 1024 * 1024


async def wait_for_the_client_to_leave(reader: StreamReader) -> None:
    while await reader.read(65536):
        pass


async def test_a_receiver_that_never_answers_is_given_up() -> None:
    left = asyncio.Event()

    async def silent(reader: StreamReader, _: StreamWriter) -> None:
        await wait_for_the_client_to_leave(reader)
        left.set()

    async with hostile(silent) as url, http_handler(url, timeout_seconds=0.2) as handler:
        with pytest.raises(Retry, match=r"^HTTPTimeoutError: no answer within 0.2 s"):
            await handler.call(a_task())
        await asyncio.wait_for(left.wait(), PATIENCE_SECONDS)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("status", "settled"), [(b"200 OK", None), (b"404 Not Found", Bury)])
async def test_a_body_that_drips_or_breaks_off_is_cut_once_the_status_has_decided(
    monkeypatch: pytest.MonkeyPatch, status: bytes, settled: type[Exception] | None, *, ends: bool
) -> None:
    """A success is a success before its body is complete; a refusal is quoted as far as it came."""
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)

    async def drip(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(HEAD % status + b"Content-Length: 1000\r\n\r\nso far")
        if not ends:
            await wait_for_the_client_to_leave(reader)

    async with hostile(drip) as url, http_handler(url, timeout_seconds=3600) as handler:
        if settled is None:
            await asyncio.wait_for(handler.call(a_task()), PATIENCE_SECONDS)
        else:
            with pytest.raises(settled, match="404 Not Found\nso far"):
                await asyncio.wait_for(handler.call(a_task()), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"SSH-2.0-OpenSSH\r\n"],
)
async def test_an_answer_without_a_whole_head_is_a_network_error(beginning: bytes) -> None:
    """Closed before, inside or instead of an HTTP head: what was done is unknown, so the task runs again."""

    async def half(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(beginning)

    async with hostile(half) as url, http_handler(url) as handler:
        with pytest.raises(Retry):
            await handler.call(a_task())


async def test_an_error_page_of_ten_megabytes_is_not_read_to_its_end() -> None:
    """The reason quotes 200 characters; memory stays far below the page, and the connection is dropped."""
    written = 0

    async def flood(_: StreamReader, writer: StreamWriter) -> None:
        nonlocal written
        writer.write(HEAD % b"500 Internal Server Error" + b"Content-Length: %d\r\n\r\n" % (10 * MEGABYTES))
        for _count in range(160):
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with hostile(flood) as url, http_handler(url) as handler:
        tracemalloc.start()
        with pytest.raises(Retry, match=r"^HTTPStatusError: 500 Internal Server Error\nx{200}$"):
            await handler.call(a_task())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * MEGABYTES
    assert written < 10 * MEGABYTES


async def test_a_compressed_answer_is_not_unpacked() -> None:
    """A small answer cannot become a large one in the worker's memory."""

    async def packed(_: StreamReader, writer: StreamWriter) -> None:
        body = b"\x1f\x8b\x08packed"
        writer.write(
            HEAD % b"400 Bad Request" + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n" + body
        )

    async with hostile(packed) as url, http_handler(url) as handler:
        with pytest.raises(Bury, match=r"400 Bad Request\n.*packed"):
            await handler.call(a_task())


async def test_a_receiver_that_cannot_be_reached_is_retried() -> None:
    """No port is open, no address is found, or there is no TLS."""

    async def plain(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no other process can answer there
        async with hostile(plain, after=b"\x16") as url:
            port = taken.getsockname()[1]
            for each, error in {
                f"http://127.0.0.1:{port}/": rf"cannot connect to 127\.0\.0\.1:{port}: connection refused$",
                f"http://receiver.invalid:{port}/": r"ClientConnector\w*Error: ",
                url.replace("http", "https"): r"ClientConnector\w*Error: ",
            }.items():
                async with http_handler(each) as handler:
                    with pytest.raises(Retry, match=f"^{error}") as raised:
                        await handler.call(a_task())
                    assert raised.value.__cause__ is None, "its traceback would be in the log"


async def test_a_cancelled_call_aborts_its_request() -> None:
    """On a lost lease the receiver sees the connection close, and the worker sees the cancellation."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: StreamReader, _: StreamWriter) -> None:
        asked.set()
        await wait_for_the_client_to_leave(reader)
        left.set()

    async with hostile(silent) as url, http_handler(url) as handler:
        running = asyncio.ensure_future(handler.call(a_task()))
        await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(left.wait(), PATIENCE_SECONDS)


async def test_no_more_connections_than_allowed() -> None:
    open_now = most = 0
    full = asyncio.Event()

    async def count(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == 2:
            full.set()
        await asyncio.wait_for(full.wait(), PATIENCE_SECONDS)
        await reader.readexactly(len(a_task().body))
        open_now -= 1
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    async with hostile(count) as url, http_handler(url, maxConnections=2) as handler:
        await asyncio.gather(*(handler.call(a_task()) for _ in range(30)))
    assert most == 2


async def test_the_time_limit_counts_from_the_call() -> None:
    """Calls that wait for another one's connection time out with it, instead of sending one after the other.

    On a busy machine the next call may still get the connection: between the end of the first and its own.
    """
    requests = 0

    async def silent(reader: StreamReader, _: StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await wait_for_the_client_to_leave(reader)

    async with hostile(silent) as url, http_handler(url, maxConnections=1, timeout_seconds=0.3) as handler:
        outcomes = await asyncio.gather(*(handler.call(a_task()) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, Retry) for outcome in outcomes)
    assert requests < 5

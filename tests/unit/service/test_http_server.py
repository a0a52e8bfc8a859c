"""Where processes listen, and what they answer to requests that are not those of a kubelet."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from delayq.service import http_server
from delayq.service.http_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, HttpServer, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.service.http_server import Query

LARGE_BYTES = 20_000_000  # more than the kernel takes
PATIENCE_SECONDS = 20
HELLO = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def hello(query: Query) -> Response:
    return Response("hello" + "".join(query.get("name", [])))


async def fail(_query: Query) -> Response:
    raise ValueError("broken")


async def large(_query: Query) -> Response:
    return Response(b"x" * LARGE_BYTES)


@asynccontextmanager
async def listening(host: str = "127.0.0.1") -> AsyncIterator[int]:
    server = HttpServer({"/": hello, "/fail": fail, "/large": large})
    try:
        yield await server.start(host, 0)
    finally:
        await server.close()


async def answers(address: str, port: int) -> bool:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"http://{address}:{port}/") as response:
                return await response.text() == "hello"
        except aiohttp.ClientConnectorError:
            return False


async def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return everything up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


def status(received: bytes) -> int:
    return int(received.split()[1])


@pytest.mark.parametrize(
    ("host", "dual", "by_ipv4", "by_ipv6"),
    [
        ("*", True, True, True),
        ("*", False, True, False),
        ("127.0.0.1", True, True, False),
        ("::1", True, False, True),
    ],
)
async def test_a_star_is_every_address_of_both_kinds_on_one_port(
    monkeypatch: pytest.MonkeyPatch, *, host: str, dual: bool, by_ipv4: bool, by_ipv6: bool
) -> None:
    """Where the kernel has no IPv6, every address of IPv4. A port that is taken is refused."""
    if not dual:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with listening(host) as port:
        assert (await answers("127.0.0.1", port), await answers("[::1]", port)) == (by_ipv4, by_ipv6)
        with pytest.raises(OSError, match="in use"):
            await HttpServer({}).start(host, port)


async def test_one_connection_serves_many_requests() -> None:
    async with listening() as port:
        received = await exchange(port, HELLO + HELLO.replace(b"/", b"/?name=+there%21", 1))
        head = await exchange(port, HELLO.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 5\r\n" in head
    assert head.endswith(b"\r\n\r\n"), "a HEAD request gets the head alone"
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.endswith(b"hello there!")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"GET /?name=x HTTP/1.0\r\n\r\n", 200),
        (b"GET /?name=%ff%00 HTTP/1.1\r\nConnection: close\r\n\r\n", 200),
        (b"GET http://here/ HTTP/1.1\r\nConnection: close\r\n\r\n", 200),
        (b"GET /none HTTP/1.0\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 33\r\n\r\n" + HELLO, 405),
        (b"GET /fail HTTP/1.0\r\n\r\n", 500),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
async def test_each_request_gets_one_response_and_the_connection_ends(sent: bytes, expected: int) -> None:
    async with listening() as port:
        received = await exchange(port, sent)
        assert status(received) == expected
        assert received.count(b"HTTP/1.1 ") == 1
        assert await answers("127.0.0.1", port)


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_a_client_that_goes_away_is_no_error(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as port:
        assert await exchange(port, sent) == b""
    assert caplog.records == []


async def test_close_lets_a_response_finish_and_ends_idle_connections_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(_query: Query) -> Response:
        asked.set()
        await may_answer.wait()
        return Response("done")

    server = HttpServer({"/": slow})
    port = await server.start("127.0.0.1", 0)
    idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
    request = asyncio.create_task(exchange(port, HELLO))
    await asked.wait()
    closing = asyncio.create_task(server.close())
    asyncio.get_running_loop().call_soon(may_answer.set)
    await closing
    assert (await request).endswith(b"done")
    assert await idle.read() == b""
    idle_writer.close()
    assert caplog.records == []


async def connect(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(sent)
    return reader, writer


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection, in time."""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.read()
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HELLO])
async def test_a_full_server_closes_what_waits_longest_and_answers_the_next(sent: bytes) -> None:
    """Silent, half a head, or idle after a request: probes and scrapes get through."""
    async with listening() as port:
        held = [await connect(port, sent) for _ in range(MAX_CONNECTIONS + 10)]
        assert status(await exchange(port, HELLO)) == 200
        for reader, _ in held[:10]:
            assert await ends(reader)
        for _, writer in held:
            writer.transport.abort()


async def test_a_full_server_takes_no_more_while_all_are_being_answered() -> None:
    """What runs is not cancelled, and memory stays bounded."""
    asked, may_answer = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_query: Query) -> Response:
        asked.release()
        await may_answer.wait()
        return Response("done")

    server = HttpServer({"/": slow})
    port = await server.start("127.0.0.1", 0)
    requests = [asyncio.create_task(exchange(port, HELLO)) for _ in range(MAX_CONNECTIONS)]
    for _ in requests:
        await asked.acquire()
    reader, writer = await connect(port, HELLO)
    assert await ends(reader)
    writer.close()
    may_answer.set()
    assert [status(each) for each in await asyncio.gather(*requests)] == [200] * MAX_CONNECTIONS
    await server.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.5)  # enough to begin a response on a busy machine
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 3600.0)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("sent", [b"", b"GET / HT", HELLO + b"G"])
async def test_a_client_has_seconds_for_a_head(sent: bytes) -> None:
    """A minute and more are for the first byte of a further request only."""
    async with listening() as port:
        idle, idle_writer = await connect(port, HELLO)
        reader, writer = await connect(port, sent)
        assert await ends(reader)
        assert not idle.at_eof()
        writer.close()
        idle_writer.close()


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_a_client_has_seconds_to_read_a_response(more: bytes) -> None:
    async with listening() as port:
        reader, writer = await connect(port, b"GET /large HTTP/1.1\r\n" + more + b"\r\n")
        await reader.readexactly(1)
        later, later_writer = await connect(port, b"")
        assert await ends(later)
        with suppress(ConnectionError):
            assert len(await reader.read()) < LARGE_BYTES
        assert await ends(reader)
        writer.close()
        later_writer.close()


async def test_a_client_that_reads_gets_all_of_a_response() -> None:
    async with listening() as port:
        received = await exchange(port, b"GET /large HTTP/1.0\r\n\r\n")
    assert received.endswith(b"\r\n\r\n" + b"x" * LARGE_BYTES)

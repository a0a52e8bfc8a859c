"""The bounds of the HTTP API on connections, with short times: no client can keep others away for long."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

import pytest
from delayq.api import app
from delayq.api import server as http

from tests.redis.state import one_server, shard_on
from tests.redis.test_api_rights import served, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis.state import Shard
    from tests.topologies.kinds import Servers

SECONDS = 1.0
GET = b"GET /v1alpha1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def shard(redis_server: Servers, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name) as shard:
        yield shard


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_SECONDS", "READ_SECONDS"):
        monkeypatch.setattr(http, name, SECONDS)
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 5)
    monkeypatch.setattr(app, "ANSWER_SECONDS", SECONDS)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What a connection brings until the server closes it."""
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""


async def test_a_client_that_does_not_read_its_answers_is_disconnected(shard: Shard) -> None:
    """Also while requests wait behind the answer, which keep the connection busy."""
    async with served(shard) as port:
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for each in slow:
            each.sendall(GET * 100)
        await asyncio.sleep(0.1)  # all are accepted
        assert (await status(port, None, "GET /openapi.json"))[0] == 503
        async with asyncio.timeout(20):
            while (await status(port, None, "GET /openapi.json"))[0] != 200:
                pass
        for each in slow:
            each.close()


@pytest.mark.parametrize(
    ("sent", "rest"), [(b"", b""), (b"\r\n", b""), (GET, b""), (GET, b"\r\n"), (GET, GET[:30])]
)
async def test_connections_without_a_whole_request_end_and_others_are_served(
    shard: Shard, sent: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections of the limit are taken, so the next one is refused until they are closed."""
    monkeypatch.setattr(http, "IDLE_SECONDS", 1)
    async with served(shard) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, writer in idle:
            writer.write(sent)
            if sent.startswith(GET):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(rest)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await ended(reader)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        assert b'"urn:delayq:busy"' in answer
        writer.close()
        for reader, _ in idle:
            await ended(reader)
        assert (await status(port, None, "GET /openapi.json"))[0] == 200
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"0\r\n" + b"X-T: y\r\n" * 100_000, b"0\r\nX-T: " + b"y" * 1_000_000, b"2;a=" + b"y" * 1_000_000],
    ids=["trailers", "a long trailer", "a chunk extension"],
)
async def test_what_is_neither_head_nor_body_is_bounded(shard: Shard, sent: bytes) -> None:
    async with served(shard) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"PUT /v1alpha1/tasks/email/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mailer\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + sent)
        assert (await ended(reader)).startswith((b"HTTP/1.1 431 ", b"")), "or a reset before it is read"
        writer.close()
        assert (await status(port, "mailer", "GET /tasks/email/a"))[0] == 404


async def test_a_request_to_a_frozen_redis_is_answered_in_time(shard: Shard) -> None:
    async with served(shard) as port:
        assert (await status(port, "mailer", "PUT /tasks/email/a", {"delay": "1h"}))[0] == 201
        server = one_server(shard)
        server.pause()
        try:
            began = time.monotonic()
            found, problem = await status(port, "mailer", "PUT /tasks/email/b", {"delay": "1h"})
        finally:
            server.resume()
        assert (found, problem["type"]) == (503, "urn:delayq:redis-unavailable")
        assert time.monotonic() - began < 5, "one try of the client takes as long, and there are several"
        for name in ("a", "b"):  # repeated as the answer says
            async with asyncio.timeout(30):
                while (await status(port, "mailer", f"PUT /tasks/email/{name}", {"delay": "1h"}))[0] == 503:
                    pass
    assert set(shard.whole().delayed) == {"email:a", "email:b"}

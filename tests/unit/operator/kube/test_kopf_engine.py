"""What the engine of kopf does about what kopf and its libraries leave behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress

import kopf
import pytest
from aiohttp import ClientConnectionError, ClientError, ClientSession, web
from aiohttp.test_utils import TestServer
from delayq_operator.kube import kopf_engine


class Page:
    """What the frame of a watch holds."""


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"{}\n")  # fails when the client has gone
        await asyncio.sleep(0.01)


async def test_a_watch_that_was_closed_while_it_was_read_leaves_nothing_in_memory() -> None:
    """Each login of kopf closes all watches so: the operator would grow for as long as it lives."""
    application = web.Application()
    application.router.add_get("/", endless)
    kept: list[weakref.ref[Page]] = []
    async with TestServer(application) as server, ClientSession() as session:

        async def watch() -> None:
            page = Page()
            kept.append(weakref.ref(page))
            response = await session.get(server.make_url("/"))
            asyncio.get_running_loop().call_soon(response.close)
            with suppress(ClientError):
                while await response.content.readline():
                    pass

        for _ in range(3):
            await watch()
    kopf_engine._drop_frames()
    gc.collect()
    assert [each for each in kept if each() is not None] == []


async def test_a_session_has_no_limit_of_connections() -> None:
    """Each watch keeps one: 9 namespaces have more watches than aiohttp's 100."""
    application, open_at_once = web.Application(), 120
    application.router.add_get("/", endless)
    async with TestServer(application) as server:
        info = kopf.ConnectionInfo(server=str(server.make_url("")))
        session = kopf_engine.session(info, print).aiohttp_session
        async with asyncio.timeout(30):
            responses = await asyncio.gather(
                *(session.get(server.make_url("/")) for _ in range(open_at_once))
            )
        assert all(each.ok for each in responses)
        for each in responses:
            each.close()
        await session.close()


async def test_a_watch_whose_session_is_closed_between_two_reads_ends_by_an_error_that_kopf_expects() -> None:
    """Each login closes the session; a RuntimeError of aiohttp would end kopf."""
    application = web.Application()
    application.router.add_get("/", endless)
    async with TestServer(application) as server:
        info = kopf.ConnectionInfo(server=str(server.make_url("")))
        session = kopf_engine.session(info, print).aiohttp_session
        response = await session.get(server.make_url("/"))
        chunks = response.content.iter_chunked(1024)
        assert await anext(aiter(chunks)) == b"{}\n"
        await session.close()
        with pytest.raises(ClientConnectionError, match="Connection closed"):
            await anext(aiter(chunks))
        response.close()

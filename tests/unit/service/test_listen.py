"""Where processes listen: one address, or all of both kinds."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from delayq.service.listen import site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def listening(host: str) -> AsyncIterator[int]:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.add_routes([web.get("/", hello)])
    runner = web.AppRunner(app)
    await runner.setup()
    await site(runner, host, 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def answers(address: str, port: int) -> bool:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"http://{address}:{port}/") as response:
                return await response.text() == "hello"
        except aiohttp.ClientConnectorError:
            return False


@pytest.mark.parametrize(
    ("host", "by_ipv4", "by_ipv6"), [("*", True, True), ("127.0.0.1", True, False), ("::1", False, True)]
)
async def test_a_star_is_every_address_of_both_kinds_on_one_port(
    host: str,
    by_ipv4: bool,  # noqa: FBT001 -- parametrized
    by_ipv6: bool,  # noqa: FBT001 -- parametrized
) -> None:
    async with listening(host) as port:
        assert (await answers("127.0.0.1", port), await answers("[::1]", port)) == (by_ipv4, by_ipv6)


async def test_a_kernel_without_ipv6_gets_every_address_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with listening("*") as port:
        assert (await answers("127.0.0.1", port), await answers("[::1]", port)) == (True, False)


async def test_a_port_that_is_taken_is_refused_as_ever() -> None:
    async with listening("*") as port, listening("127.0.0.1") as other:
        assert port != other
        app = web.AppRunner(web.Application())
        await app.setup()
        with pytest.raises(OSError, match="in use"):
            await site(app, "*", port).start()
        await app.cleanup()

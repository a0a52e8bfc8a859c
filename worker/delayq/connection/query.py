"""Queries to Sentinels and nodes about the topology, for asyncio. Connections to Sentinels stay open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from delayq.connection.round_trip import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Connection

    from delayq.connection.address import Address
    from delayq.connection.round_trip import Command

CONCURRENT_REPLY_SECONDS = 2.0  # for one server to connect and reply; others are queried meanwhile


class QueryClient:
    """Sends queries, one connection for each server. With `keep_open`, connections are reused."""

    def __init__(self, *, keep_open: bool) -> None:
        """Open no connection yet."""
        self._keep_open = keep_open
        self._open: dict[Address, Connection] = {}

    async def replies(self, address: Address, queries: Sequence[Command]) -> list[Any]:
        """Return the replies of one server, with error replies as values."""
        connection = self._open.pop(address, None)
        if connection is not None:
            try:
                return await self._replies(address, connection, queries)
            except TimeoutError:
                raise
            except (RedisError, OSError):
                """The server may have closed an idle connection: use a new one."""
        return await self._replies(address, address.connection(), queries)

    async def _replies(
        self, address: Address, connection: Connection, queries: Sequence[Command]
    ) -> list[Any]:
        try:
            async with asyncio.timeout(CONCURRENT_REPLY_SECONDS):
                await connection.connect()
                replies = await replies_of(connection, queries)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if self._keep_open and not any(isinstance(reply, RedisError) for reply in replies):
            self._open[address] = connection
        else:
            await connection.disconnect(nowait=True)
        return replies

    async def close(self) -> None:
        """Close all connections."""
        while self._open:
            await self._open.popitem()[1].disconnect(nowait=True)


async def replies_of(connection: Connection, queries: Sequence[Command]) -> list[Any]:
    """Send commands on an open connection and return the replies, with error replies as values."""
    await connection.send_packed_command(packed(queries), check_health=False)
    return [await reply_of(connection) for _ in queries]


async def reply_of(connection: Connection) -> object:
    """Read a reply. An error reply is a value; an error of the connection is raised."""
    try:
        return await connection.read_response(disable_decoding=True)
    except RedisError as error:
        if not connection.is_connected:
            raise
        return error

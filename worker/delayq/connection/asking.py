"""Asking one server a few questions, for asyncio; connections to Sentinels that answered stay open."""

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

ANSWER_SECONDS = 2.0  # for which one server is waited for


class Asker:
    """Asks servers, each on a connection of its own; with `keeps`, one that answered is asked again on it."""

    def __init__(self, *, keeps: bool) -> None:
        """Start without connections."""
        self._keeps = keeps
        self._kept: dict[Address, Connection] = {}

    async def replies(self, address: Address, questions: Sequence[Command]) -> list[Any]:
        """Return what one server replies, an error reply as a value."""
        kept = self._kept.pop(address, None)
        if kept is not None:
            try:
                return await self._replies(address, kept, questions)
            except TimeoutError:
                raise
            except (RedisError, OSError):
                """It may have been idle for long; a new one will tell."""
        return await self._replies(address, address.connection(), questions)

    async def _replies(
        self, address: Address, connection: Connection, questions: Sequence[Command]
    ) -> list[Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await connection.connect()
                replies = await replies_of(connection, questions)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if self._keeps and not any(isinstance(reply, RedisError) for reply in replies):
            self._kept[address] = connection
        else:
            await connection.disconnect(nowait=True)
        return replies

    async def close(self) -> None:
        """Disconnect."""
        while self._kept:
            await self._kept.popitem()[1].disconnect(nowait=True)


async def replies_of(connection: Connection, questions: Sequence[Command]) -> list[Any]:
    """Ask on an open connection; an error reply is a value."""
    await connection.send_packed_command(packed(questions), check_health=False)
    return [await reply_of(connection) for _ in questions]


async def reply_of(connection: Connection) -> object:
    """Read a reply; an error is a value, unless it is the connection's."""
    try:
        return await connection.read_response(disable_decoding=True)
    except RedisError as error:
        if not connection.is_connected:
            raise
        return error

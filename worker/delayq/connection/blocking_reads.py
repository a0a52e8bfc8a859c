"""Blocking on hint lists, on a connection of its own. A wake token may be lost: every reader has a timer too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from delayq.connection.asking import replies_of
from delayq.connection.connectors import Holder, connected, connector_of
from delayq.connection.redirects import redirect, unblocked
from delayq.connection.round_trip import reply_text, shown, translated
from delayq.connection.routing import ASKING, HOPS
from delayq.connection.slots import slot_of
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Connection

    from delayq.connection.address import Address
    from delayq.connection.connectors import One
    from delayq.connection.redirects import Redirect
    from delayq.connection.round_trip import Command

BLOCK_SECONDS = 30  # how long one BLPOP lasts
WATCHDOG_SECONDS = 40  # a connection silent for longer is dead, whatever TCP thinks


class BlockingReads:
    """BLPOP on lists that hold at most one token each; in a Cluster, on those of one shard at a time."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure, or when the master is another server."""
        self.address = address
        self._connector = self._opener_for(0)
        self._slot = 0
        self._connection: Connection | None = None
        self._timeout: asyncio.Timeout | None = None  # of the wait that is under way
        self._interrupted = False

    async def wait(self, keys: Sequence[str]) -> str | None:
        """Return the list that held a token, None after BLOCK_SECONDS or interrupt(). Unavailable without Redis."""
        if (
            self._interrupted
        ):  # before this wait, when there was nothing to end: the master may be another server
            await self._disconnect()
        self._interrupted = False
        if self.address.apart and slot_of(keys[0]) != self._slot:
            await self.close()
            self._slot = slot_of(keys[0])
            self._connector = self._opener_for(self._slot)
        try:
            async with asyncio.timeout(WATCHDOG_SECONDS) as self._timeout:
                reply = await self._popped(("BLPOP", *keys, BLOCK_SECONDS))
        except (RedisError, OSError, DelayQError) as error:  # TimeoutError is an OSError
            await self._failed(error)
            return None
        except asyncio.CancelledError:
            await self._disconnect()
            raise
        finally:
            self._timeout = None
        return reply[0].decode() if reply else None

    def _opener_for(self, slot: int) -> One:
        connector = connector_of(self.address, slot)
        connector.drop = self._interrupt
        return connector

    async def _popped(self, command: Command) -> Any:  # noqa: ANN401 -- as Redis sent it
        """Ask the server that holds the lists, and follow a redirection; a slot that moves redirects its readers."""
        asked: list[Command] = [command]
        for hop in range(HOPS):
            if self._connection is None or not self._connection.is_connected:
                self._connection = await self._connector.open()
            *_, reply = await replies_of(self._connection, asked)
            if not isinstance(reply, ResponseError):
                return reply
            said = self._said(reply)
            if said is None or hop == HOPS - 1:
                raise reply
            asked = [command] if await self._followed(said) else [ASKING, command]
        return None

    def _said(self, reply: ResponseError) -> Redirect | None:
        place = self._connector.place if isinstance(self._connector, Holder) else None
        return None if place is None else redirect(reply_text(reply), place)

    async def _followed(self, said: Redirect) -> bool:
        """Go where a node sent us; returns whether the lists are there for good."""
        await self._disconnect()
        if isinstance(self._connector, Holder):
            if said.kind == "MOVED":
                self._connector.directory.learn(said)
                return True
            self._connector.place = said.place
        self._connection = await connected(self.address.at(said.place))
        return False

    async def _failed(self, error: Exception) -> None:
        await self._disconnect()
        if self._interrupted:
            return
        self._connector.failed()
        if isinstance(error, ResponseError) and unblocked(reply_text(error)):
            return
        if isinstance(error, DelayQError):
            raise error
        raise translated(error, self._connector.where, "BLPOP") from shown(error)

    async def interrupt(self) -> None:
        """End a wait that is under way: other lists are to be waited on."""
        self._interrupt()

    def _interrupt(self) -> None:
        if self._timeout is not None and not self._timeout.expired() and not self._interrupted:
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self._interrupted = True

    async def close(self) -> None:
        """Disconnect; a token on its way is lost, as hints may be."""
        await self._disconnect()
        await self._connector.close()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

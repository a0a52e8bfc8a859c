"""Blocking reads of wake tokens, on a connection of their own. A token may be lost: readers also have a timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from delayq.connection.connectors import MasterConnector, connected, connector_of
from delayq.connection.query import replies_of
from delayq.connection.round_trip import reply_text, shown, translated
from delayq.connection.routing import ASKING, HOPS, is_unblocked, redirect
from delayq.connection.slots import slot_of
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Connection

    from delayq.connection.address import Address
    from delayq.connection.connectors import Connector
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Redirect

BLOCK_SECONDS = 30  # how long one BLPOP lasts
WATCHDOG_SECONDS = 40  # without a reply for longer, the connection is dead, even if TCP reports no error


class BlockingReads:
    """BLPOP on lists of at most one token each. In a Cluster, one call waits on the lists of one shard."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, after a failure, and when another server is the master."""
        self.address = address
        self._connector = self._connector_for(0)
        self._slot = 0
        self._connection: Connection | None = None
        self._timeout: asyncio.Timeout | None = None  # of the current wait
        self._interrupted = False

    async def wait(self, keys: Sequence[str]) -> str | None:
        """Return the list that held a token, None after BLOCK_SECONDS or interrupt(). Unavailable without Redis."""
        if self._interrupted:  # since the last wait: the master may have changed
            await self._disconnect()
        self._interrupted = False
        if self.address.is_cluster and slot_of(keys[0]) != self._slot:
            await self.close()
            self._slot = slot_of(keys[0])
            self._connector = self._connector_for(self._slot)
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

    def _connector_for(self, slot: int) -> Connector:
        connector = connector_of(self.address, slot)
        connector.drop = self._interrupt
        return connector

    async def _popped(self, command: Command) -> Any:  # noqa: ANN401 -- as Redis sent it
        """Send a command to the server that holds the lists, and follow redirects: a slot may migrate."""
        commands: list[Command] = [command]
        for hop in range(HOPS):
            if self._connection is None or not self._connection.is_connected:
                self._connection = await self._connector.open()
            *_, reply = await replies_of(self._connection, commands)
            if not isinstance(reply, ResponseError):
                return reply
            target = self._redirect(reply)
            if target is None or hop == HOPS - 1:
                raise reply
            commands = [command] if await self._follow(target) else [ASKING, command]
        return None

    def _redirect(self, reply: ResponseError) -> Redirect | None:
        place = self._connector.place if isinstance(self._connector, MasterConnector) else None
        return None if place is None else redirect(reply_text(reply), place)

    async def _follow(self, target: Redirect) -> bool:
        """Connect to the target of a redirect. Returns whether it is permanent (MOVED)."""
        await self._disconnect()
        if isinstance(self._connector, MasterConnector):
            if target.kind == "MOVED":
                self._connector.discovery.apply_redirect(target)
                return True
            self._connector.place = target.place
        self._connection = await connected(self.address.at(target.place))
        return False

    async def _failed(self, error: Exception) -> None:
        await self._disconnect()
        if self._interrupted:
            return
        self._connector.on_failure()
        if isinstance(error, ResponseError) and is_unblocked(reply_text(error)):
            return
        if isinstance(error, DelayQError):
            raise error
        raise translated(error, self._connector.where, "BLPOP") from shown(error)

    async def interrupt(self) -> None:
        """End the current wait, because the caller has other lists to wait on."""
        self._interrupt()

    def _interrupt(self) -> None:
        if self._timeout is not None and not self._timeout.expired() and not self._interrupted:
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self._interrupted = True

    async def close(self) -> None:
        """Disconnect. A token in transit is lost; readers also have a timer."""
        await self._disconnect()
        await self._connector.close()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

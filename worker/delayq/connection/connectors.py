"""Opening a connection to the right server, whichever that is now, and noticing when it no longer is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from delayq.connection.asking import replies_of
from delayq.connection.discovery import discovery_of
from delayq.connection.round_trip import translated
from delayq.connection.sentinels import ROLE, is_master
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Connection

    from delayq.connection.address import Address
    from delayq.connection.discovery import Discovery
    from delayq.connection.place import Place

PAUSES_SECONDS = (0.1, 0.2, 0.4)  # between tries while a server that Sentinels name says that it is no master


def _nothing() -> None:
    """Drop nothing: there is no connection yet."""


async def connected(address: Address) -> Connection:
    """Return an open connection; what fails half-way is closed."""
    connection = address.connection()
    try:
        await connection.connect()
    except UnicodeError as error:  # not a valid host name
        raise Unavailable(address.where, str(error), outage="dns") from error
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection


class One:
    """A single server, without discovery. Subclasses discover their server."""

    doubts = False  # whether discovery can check a server that does not answer

    def __init__(self, address: Address) -> None:
        """`address`: of the server."""
        self.address = address
        self.drop: Callable[[], None] = _nothing
        """Called if the connection leads to the wrong server; set by the owner of the connection."""

    @property
    def where(self) -> str:
        """For messages."""
        return self.address.where

    async def open(self) -> Connection:
        """Return a connection that has logged in; RedisError, OSError, Unavailable otherwise."""
        return await connected(self.address)

    async def name(self) -> str:
        """Return the current server, host:port; Unavailable if unknown."""
        return self.where

    async def look(self, *, idle: bool) -> None:
        """Check periodically, before a round trip, whether this is still the right server.

        Only an idle connection waits for the result.
        """

    def doubt(self) -> None:
        """Start discovery, because a reply is late."""

    def failed(self) -> None:
        """Require discovery before the next connection, because this one failed."""

    async def close(self) -> None:
        """Stop watching the topology."""


class Holder(One):
    """The master that holds a slot; with Sentinels, all of them."""

    doubts = True

    def __init__(self, address: Address, slot: int = 0) -> None:
        """The first open() starts discovery."""
        super().__init__(address)
        self._slot = slot
        self.place: Place | None = None  # of the present or the next connection
        self._directory: Discovery | None = None

    @property
    def where(self) -> str:
        return self.address.where if self.place is None else str(self.place)

    @property
    def directory(self) -> Discovery:
        """The process' discovery of this topology, which notifies this connector of changes."""
        if self._directory is None:
            self._directory = discovery_of(self.address)
            self._directory.watchers.add(self)
        return self._directory

    async def open(self) -> Connection:
        if self.address.apart:
            return await self._connected()
        for pause in PAUSES_SECONDS:
            if (connection := await self._master()) is not None:
                return connection
            await asyncio.sleep(pause)
        raise Unavailable(self.where, "it is no master, says its ROLE", outage="no_master")

    async def name(self) -> str:
        return str(await self._holder())

    async def _holder(self) -> Place:
        return await self.directory.holder(self._slot, within=self.address.timeout_seconds)

    async def _connected(self) -> Connection:
        self.place = None
        self.place = await self._holder()
        return await connected(self.address.at(self.place))

    async def _master(self) -> Connection | None:
        """Return a connection, if it leads to a master by its own account: Sentinels may be behind."""
        await self.directory.fresh()
        connection = await self._connected()
        leads = False
        try:
            [reply] = await replies_of(connection, [ROLE])
            leads = is_master(reply)
        finally:
            if not leads:
                await connection.disconnect(nowait=True)
        if isinstance(reply, RedisError):
            raise translated(reply, self.where, "ROLE")
        return connection if leads else None

    def moved(self) -> None:
        """Drop a connection to what is no longer the right server."""
        if self.place is not None and self.place != self.directory.topology.holder(self._slot):
            self.drop()

    async def look(self, *, idle: bool) -> None:
        if self.directory.old:
            asking = self.directory.ask()
            if idle and self.place is not None:
                await asyncio.wait({asking}, timeout=self.address.timeout_seconds / 2)

    def doubt(self) -> None:
        self.directory.ask()

    def failed(self) -> None:
        if self.place is not None:
            self.directory.suspect(self.place)

    async def close(self) -> None:
        if self._directory is not None:
            await self._directory.leave(self)
            self._directory = None


class Node(One):
    """One node of a Cluster, master of some slots. It needs no looks: one that is cut off stops serving by itself."""

    doubts = True

    def __init__(self, directory: Discovery, address: Address, place: Place) -> None:
        """The owner of the connection watches the discovery, which has timeouts of its own."""
        super().__init__(address.at(place))
        self._directory, self._place = directory, place

    def doubt(self) -> None:
        self._directory.ask()

    def failed(self) -> None:
        self._directory.suspect(self._place)


def connector_of(address: Address, slot: int = 0) -> One:
    """Return what opens connections to the master of a slot."""
    return One(address) if address.kind == "standalone" else Holder(address, slot)

"""Opens connections to the current master, and detects when the master has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from delayq.connection.discovery import discovery_of
from delayq.connection.query import replies_of
from delayq.connection.round_trip import translated
from delayq.connection.sentinels import NOT_A_MASTER, ROLE, is_master
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Connection

    from delayq.connection.address import Address
    from delayq.connection.discovery import Discovery
    from delayq.connection.place import Place

PAUSES_SECONDS = (0.1, 0.2, 0.4)  # between retries while the server named by the Sentinels is not a master


def _nothing() -> None:
    """Do nothing: there is no connection yet."""


async def connected(address: Address) -> Connection:
    """Return an open connection; close it if connecting fails."""
    connection = address.connection()
    try:
        await connection.connect()
    except UnicodeError as error:  # not a valid host name
        raise Unavailable(address.where, str(error), outage="dns") from error
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection


class Connector:
    """A single server, without discovery. Subclasses discover their server."""

    has_discovery = False  # whether discovery can check a server that does not answer

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

    async def check_master(self, *, idle: bool) -> None:
        """Check the master periodically, before a round trip.

        Only an idle connection waits for the result.
        """

    def on_late_reply(self) -> None:
        """Query the topology, because a reply is late."""

    def on_failure(self) -> None:
        """Require a query before the next connection, because this one failed."""

    async def close(self) -> None:
        """Stop watching the topology."""


class MasterConnector(Connector):
    """The master that holds a slot; with Sentinels, there is one master for all slots."""

    has_discovery = True

    def __init__(self, address: Address, slot: int = 0) -> None:
        """The first open() starts discovery."""
        super().__init__(address)
        self._slot = slot
        self.place: Place | None = None  # of the present or the next connection
        self._discovery: Discovery | None = None

    @property
    def where(self) -> str:
        return self.address.where if self.place is None else str(self.place)

    @property
    def discovery(self) -> Discovery:
        """The process' discovery of this topology, which notifies this connector of changes."""
        if self._discovery is None:
            self._discovery = discovery_of(self.address)
            self._discovery.watchers.add(self)
        return self._discovery

    async def open(self) -> Connection:
        if self.address.is_cluster:
            return await self._connected()
        for pause in PAUSES_SECONDS:
            if (connection := await self._master()) is not None:
                return connection
            await asyncio.sleep(pause)
        raise Unavailable(self.where, NOT_A_MASTER, outage="no_master")

    async def name(self) -> str:
        return str(await self._holder())

    async def _holder(self) -> Place:
        return await self.discovery.holder(self._slot, within=self.address.timeout_seconds)

    async def _connected(self) -> Connection:
        self.place = None
        self.place = await self._holder()
        return await connected(self.address.at(self.place))

    async def _master(self) -> Connection | None:
        """Return a connection if the server confirms by ROLE that it is a master: Sentinels may be outdated."""
        await self.discovery.refresh()
        connection = await self._connected()
        is_master_now = False
        try:
            [reply] = await replies_of(connection, [ROLE])
            is_master_now = is_master(reply)
        finally:
            if not is_master_now:
                await connection.disconnect(nowait=True)
        if isinstance(reply, RedisError):
            raise translated(reply, self.where, "ROLE")
        return connection if is_master_now else None

    def topology_changed(self) -> None:
        """Drop the connection if another server is the master now."""
        if self.place is not None and self.place != self.discovery.topology.holder(self._slot):
            self.drop()

    async def check_master(self, *, idle: bool) -> None:
        if self.discovery.is_stale:
            task = self.discovery.start_query()
            if idle and self.place is not None:
                await asyncio.wait({task}, timeout=self.address.timeout_seconds / 2)

    def on_late_reply(self) -> None:
        self.discovery.start_query()

    def on_failure(self) -> None:
        if self.place is not None:
            self.discovery.suspect(self.place)

    async def close(self) -> None:
        if self._discovery is not None:
            await self._discovery.unsubscribe(self)
            self._discovery = None


class NodeConnector(Connector):
    """One node of a Cluster. It needs no periodic check: an isolated master stops serving by itself."""

    has_discovery = True

    def __init__(self, discovery: Discovery, address: Address, place: Place) -> None:
        """The owner of the connection watches the discovery, which has timeouts of its own."""
        super().__init__(address.at(place))
        self._discovery, self._place = discovery, place

    def on_late_reply(self) -> None:
        self._discovery.start_query()

    def on_failure(self) -> None:
        self._discovery.suspect(self._place)


def connector_of(address: Address, slot: int = 0) -> Connector:
    """Return the connector to the master of a slot."""
    return Connector(address) if address.kind == "standalone" else MasterConnector(address, slot)

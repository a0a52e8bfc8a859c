"""The servers of one topology for blocking connections: the holder of each slot, and a pool for each server."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from delayq.connection.blocking_discovery import BlockingDiscovery
from delayq.connection.pool import Pool
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from delayq.connection.address import Address
    from delayq.connection.deadline import Deadline
    from delayq.connection.place import Place
    from delayq.connection.pool import Wire


class Servers:
    """Shared by all threads."""

    def __init__(self, address: Address) -> None:
        """Connect and query on first use."""
        self.address, self.discovery = address, BlockingDiscovery(address, self._moved)
        self._pools: dict[Place, Pool] = {}
        self._lock = Lock()

    def pool(self, place: Place) -> Pool:
        """Return the pool of one server. With Sentinels, its connections check that the server is a master."""
        with self._lock:
            if place not in self._pools:
                self._pools[place] = Pool(self.address.at(place), checked=self.address.kind == "sentinel")
            return self._pools[place]

    def give(self, place: Place, wire: Wire) -> None:
        """Return a connection to its pool; close it if its server is no longer a master."""
        pool = self._pools.get(place)
        if pool is None:
            wire.drop()
        else:
            pool.give(wire)

    def _moved(self) -> None:
        """Close the connections to servers that are no longer masters."""
        masters = self.discovery.topology.masters() if self.discovery.topology is not None else frozenset()
        with self._lock:
            gone = [self._pools.pop(place) for place in set(self._pools) - masters]
        for pool in gone:
            pool.drop()

    def demoted(self, place: Place) -> None:
        """Close the connections to a server that is no longer or not yet a master, and query before the next call."""
        self.pool(place).drop()
        self.discovery.suspect(place)

    def successor(self, place: Place, slot: int, deadline: Deadline) -> Place | None:
        """Return the new master if it is not this server, which has not replied; None otherwise, or if unknown."""
        if self.address.kind == "standalone":
            return None
        self.discovery.query(deadline)
        try:
            now = self.discovery.holder(slot, deadline)
        except DelayQError:
            return None
        return None if now == place else now

    def close(self) -> None:
        """Close every connection."""
        for pool in list(self._pools.values()):
            pool.drop()
        self.discovery.close()

"""The servers of one topology for blocking connections: who holds which slot, and a pool of connections to each."""

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
        """Connect and ask on first use."""
        self.address, self.discovery = address, BlockingDiscovery(address, self._moved)
        self._pools: dict[Place, Pool] = {}
        self._lock = Lock()

    def pool(self, place: Place) -> Pool:
        """Return the connections to one server. One that Sentinels name has to say that it is a master."""
        with self._lock:
            if place not in self._pools:
                self._pools[place] = Pool(self.address.at(place), checked=self.address.kind == "sentinel")
            return self._pools[place]

    def give(self, place: Place, line: Wire) -> None:
        """Take a connection back; it is closed when it led to what is no master any more."""
        pool = self._pools.get(place)
        if pool is None:
            line.drop()
        else:
            pool.give(line)

    def _moved(self) -> None:
        """Close the connections to servers that are masters of nothing any more."""
        masters = self.discovery.topology.masters() if self.discovery.topology is not None else frozenset()
        with self._lock:
            gone = [self._pools.pop(place) for place in set(self._pools) - masters]
        for pool in gone:
            pool.drop()

    def deposed(self, place: Place) -> None:
        """Connect anew to what is not, or not yet, a master, and ask who is before the next call."""
        self.pool(place).drop()
        self.discovery.doubt(place)

    def successor(self, place: Place, slot: int, deadline: Deadline) -> Place | None:
        """Return the successor of a server that does not answer; None if there is none, or if unknown."""
        if self.address.kind == "standalone":
            return None
        self.discovery.ask(deadline)
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

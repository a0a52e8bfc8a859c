"""Finds the current master, for asyncio, with one query at a time for all callers. Results are in topology_state.py.

Connections of one process to the same topology share a directory: a doubt raised by one connection that waits for a
reply also helps another one that only listens.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from redis.exceptions import RedisError

from delayq.connection.address import HEALTH_CHECK_SECONDS, TIMEOUT_SECONDS
from delayq.connection.asking import Asker
from delayq.connection.round_trip import translated
from delayq.connection.topology_state import (
    LOOK_SECONDS,
    NEXT_SECONDS,
    REST_SECONDS,
    ClusterTopology,
    no_master,
    topology_of,
)
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.redirects import Redirect
    from delayq.connection.topology_state import Topology


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Address, Discovery]] = (
    WeakKeyDictionary()
)


class Watcher(Protocol):
    """A subscriber to topology changes."""

    def moved(self) -> None:
        """Handle a changed topology."""


class Discovery:
    """Discovers one topology, and stores the result for the process."""

    def __init__(self, address: Address, topology: Topology) -> None:
        """Start without results, and send nothing until the first call."""
        self.address, self.topology = address, topology
        self.watchers: set[Watcher] = set()
        self._announced = topology.known()  # to the watchers
        self._suspects: set[Place] = set()
        self._asker = Asker(keeps=not address.apart)  # Sentinels are asked again and again, see old()
        self._asking: asyncio.Task[None] | None = None
        self._answering: dict[Address, asyncio.Task[bool]] = {}  # Sentinels, some of them late
        self._asked_at = -math.inf  # monotonic seconds
        self._error: DelayQError | None = None  # of the last one asked in vain

    async def holder(self, slot: int = 0, *, within: float = TIMEOUT_SECONDS) -> Place:
        """Return the master, of a slot; Unavailable if unknown."""
        place = self.topology.holder(slot)
        if place is None or place in self._suspects:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self.asked()
            place = self.topology.holder(slot)
        if place is None:
            raise no_master(self.address, self.topology, self._error)
        return place

    async def anybody(self) -> Place:
        """Return any master; Unavailable if unknown."""
        if not self.topology.masters():
            await self.asked()
        for place in self.topology.masters():
            return place
        raise no_master(self.address, self.topology, self._error)

    def suspect(self, place: Place) -> None:
        """Record a failed server: the next caller waits until another server confirms the master."""
        self._suspects.add(place)
        self.ask()

    async def asked(self) -> None:
        """Wait for a query, new or in progress."""
        asking = self.ask()
        await asyncio.wait({asking})
        if asking.cancelled():
            raise Unavailable(self.address.where, "connection closed")
        asking.result()

    async def fresh(self) -> None:
        """Wait for a query, unless the last one is recent."""
        if time.monotonic() - self._asked_at > REST_SECONDS:
            await self.asked()

    def ask(self) -> asyncio.Task[None]:
        """Start a query unless one is in progress; notify watchers if the result differs."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return self._asking

    @property
    def old(self) -> bool:
        """Whether a periodic query is due: after a failover, a partitioned old master can still answer its clients."""
        return time.monotonic() - self._asked_at > LOOK_SECONDS and not self.address.apart

    def learn(self, said: Redirect | None) -> None:
        """Apply a redirect of a Cluster node, and start a query; None: the Cluster is down."""
        if isinstance(self.topology, ClusterTopology) and said is not None:
            self.topology.moved(said)
        self.ask()

    async def _ask(self) -> None:
        try:
            await asyncio.sleep(self._asked_at + REST_SECONDS - time.monotonic())
            self.topology.begin()
            self._suspects.clear()
            await (self._query_nodes() if self.address.apart else self._query_sentinels())
            self.topology.settle()
        finally:
            self._asked_at, self._asking = time.monotonic(), None
        self._tell()

    def _tell(self) -> None:
        """Notify the watchers if the topology has changed."""
        before, self._announced = self._announced, self.topology.known()
        if before == self._announced:
            return
        for watcher in list(self.watchers):
            try:
                watcher.moved()
            except Exception as error:  # noqa: BLE001 -- one's failure is not the others'
                found = {"message": "watcher failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(found)

    async def _query_sentinels(self) -> None:
        """Query all Sentinels at once. After the first certain answer, wait only briefly for the others.

        So a hanging Sentinel delays no caller. Later answers still count.
        """
        for address in self.topology.asked():
            if address not in self._answering:
                task = self._answering[address] = asyncio.create_task(self._answers(address))
                task.add_done_callback(partial(self._on_answer, address))
        waiting, until = set(self._answering.values()), math.inf
        while waiting:
            left = None if until == math.inf else max(0.0, until - time.monotonic())
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
            if until == math.inf and any(map(asyncio.Task.result, done)):
                until = time.monotonic() + NEXT_SECONDS

    def _on_answer(self, address: Address, task: asyncio.Task[bool]) -> None:
        del self._answering[address]
        if self._asking is None and not task.cancelled():
            self._tell()

    async def _query_nodes(self) -> None:
        """Query the nodes of a Cluster one by one, until one answer is certain."""
        waiting, asking = self.topology.asked(), set[asyncio.Task[bool]]()
        try:
            while waiting or asking:
                if waiting:
                    asking.add(asyncio.create_task(self._answers(waiting.pop(0))))
                patience = NEXT_SECONDS if waiting else None
                done, asking = await asyncio.wait(
                    asking, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if any(map(asyncio.Task.result, done)):
                    return
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _answers(self, address: Address) -> bool:
        try:
            replies = await self._asker.replies(address, self.topology.questions)
            return self.topology.learn(address.places[0], replies)
        except (RedisError, OSError) as error:
            self._error = translated(error, address.where, "questions")
        except Exception as error:  # noqa: BLE001 -- what cannot be read is no answer
            self._error = Unavailable(address.where, f"an answer that cannot be read: {error!r:.200}")
        return False

    async def leave(self, watcher: Watcher) -> None:
        """Unsubscribe a watcher; without watchers, stop all queries."""
        self.watchers.discard(watcher)
        if self.watchers:
            return
        under_way = [*self._answering.values(), *([self._asking] if self._asking else [])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._asker.close()


def discovery_of(address: Address) -> Discovery:
    """Return the discovery that all connections of this event loop to a topology share, whatever their timeouts."""
    found = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    same = replace(
        address,
        timeout_seconds=TIMEOUT_SECONDS,
        health_check_seconds=HEALTH_CHECK_SECONDS,
        max_connections=1,
    )
    return found.setdefault(same, Discovery(same, topology_of(same)))

"""Finds the current master, for asyncio, with one query at a time for all callers. Results are in topology_state.py.

Connections of one process to the same topology share a Discovery: a late reply on one connection also makes another,
which only waits for tokens, find the new master.
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
from delayq.connection.query import QueryClient
from delayq.connection.round_trip import CLOSED, translated
from delayq.connection.topology_state import (
    NEXT_SERVER_SECONDS,
    QUERY_PAUSE_SECONDS,
    REFRESH_SECONDS,
    ClusterTopology,
    no_master,
    topology_of,
)
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.routing import Redirect
    from delayq.connection.topology_state import Topology


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Address, Discovery]] = (
    WeakKeyDictionary()
)


class Watcher(Protocol):
    """A subscriber to topology changes."""

    def topology_changed(self) -> None:
        """Handle a changed topology."""


class Discovery:
    """Discovers one topology, and stores the result for the process."""

    def __init__(self, address: Address, topology: Topology) -> None:
        """Start without results, and send nothing until the first call."""
        self.address, self.topology = address, topology
        self.watchers: set[Watcher] = set()
        self._notified = topology.snapshot()  # to the watchers
        self._suspects: set[Place] = set()
        self._query_client = QueryClient(
            keep_open=not address.is_cluster
        )  # Sentinels are queried repeatedly, see is_stale()
        self._query_task: asyncio.Task[None] | None = None
        self._pending: dict[Address, asyncio.Task[bool]] = {}  # Sentinels, some of them late
        self._queried_at = -math.inf  # monotonic seconds
        self._error: DelayQError | None = None  # of the last query that failed

    async def holder(self, slot: int = 0, *, within: float = TIMEOUT_SECONDS) -> Place:
        """Return the master, of a slot; Unavailable if unknown."""
        place = self.topology.holder(slot)
        if place is None or place in self._suspects:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self.query()
            place = self.topology.holder(slot)
        if place is None:
            raise no_master(self.address, self.topology, self._error)
        return place

    async def any_master(self) -> Place:
        """Return any master; Unavailable if unknown."""
        if not self.topology.masters():
            await self.query()
        for place in self.topology.masters():
            return place
        raise no_master(self.address, self.topology, self._error)

    def suspect(self, place: Place) -> None:
        """Record a failed server: the next caller waits until another server confirms the master."""
        self._suspects.add(place)
        self.start_query()

    async def query(self) -> None:
        """Wait for a query, new or in progress."""
        running = self.start_query()
        await asyncio.wait({running})
        if running.cancelled():
            raise Unavailable(self.address.where, CLOSED)
        running.result()

    async def refresh(self) -> None:
        """Wait for a query, unless the last one is recent."""
        if time.monotonic() - self._queried_at > QUERY_PAUSE_SECONDS:
            await self.query()

    def start_query(self) -> asyncio.Task[None]:
        """Start a query unless one is in progress; notify watchers if the result differs."""
        if self._query_task is None:
            self._query_task = asyncio.create_task(self._run_query())
        return self._query_task

    @property
    def is_stale(self) -> bool:
        """Whether a periodic query is due: after a failover, a partitioned old master can still answer its clients."""
        return time.monotonic() - self._queried_at > REFRESH_SECONDS and not self.address.is_cluster

    def apply_redirect(self, redirect: Redirect | None) -> None:
        """Apply a redirect of a Cluster node, and start a query; None: the Cluster is down."""
        if isinstance(self.topology, ClusterTopology) and redirect is not None:
            self.topology.apply_redirect(redirect)
        self.start_query()

    async def _run_query(self) -> None:
        try:
            await asyncio.sleep(self._queried_at + QUERY_PAUSE_SECONDS - time.monotonic())
            self.topology.begin_round()
            self._suspects.clear()
            await (self._query_nodes() if self.address.is_cluster else self._query_sentinels())
            self.topology.end_round()
        finally:
            self._queried_at, self._query_task = time.monotonic(), None
        self._notify()

    def _notify(self) -> None:
        """Notify the watchers if the topology has changed."""
        before, self._notified = self._notified, self.topology.snapshot()
        if before == self._notified:
            return
        for watcher in list(self.watchers):
            try:
                watcher.topology_changed()
            except Exception as error:  # noqa: BLE001 -- one watcher must not affect the others
                found = {"message": "watcher failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(found)

    async def _query_sentinels(self) -> None:
        """Query all Sentinels at once. After the first certain answer, wait only briefly for the others.

        So a hanging Sentinel delays no caller. Later answers still count.
        """
        for address in self.topology.candidates():
            if address not in self._pending:
                task = self._pending[address] = asyncio.create_task(self._query_server(address))
                task.add_done_callback(partial(self._on_answer, address))
        waiting, until = set(self._pending.values()), math.inf
        while waiting:
            left = None if until == math.inf else max(0.0, until - time.monotonic())
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
            if until == math.inf and any(map(asyncio.Task.result, done)):
                until = time.monotonic() + NEXT_SERVER_SECONDS

    def _on_answer(self, address: Address, task: asyncio.Task[bool]) -> None:
        del self._pending[address]
        if self._query_task is None and not task.cancelled():
            self._notify()

    async def _query_nodes(self) -> None:
        """Query the nodes of a Cluster one by one, until one answer is certain."""
        waiting, running = self.topology.candidates(), set[asyncio.Task[bool]]()
        try:
            while waiting or running:
                if waiting:
                    running.add(asyncio.create_task(self._query_server(waiting.pop(0))))
                patience = NEXT_SERVER_SECONDS if waiting else None
                done, running = await asyncio.wait(
                    running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if any(map(asyncio.Task.result, done)):
                    return
        finally:
            for query in running:
                query.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _query_server(self, address: Address) -> bool:
        try:
            replies = await self._query_client.replies(address, self.topology.queries)
            return self.topology.add_reply(address.places[0], replies)
        except (RedisError, OSError) as error:
            self._error = translated(error, address.where, "queries")
        except Exception as error:  # noqa: BLE001 -- a malformed reply counts as no reply
            self._error = Unavailable(address.where, f"malformed reply to a topology query: {error!r:.200}")
        return False

    async def unsubscribe(self, watcher: Watcher) -> None:
        """Unsubscribe a watcher; without watchers, stop all queries."""
        self.watchers.discard(watcher)
        if self.watchers:
            return
        under_way = [*self._pending.values(), *([self._query_task] if self._query_task else [])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._query_client.close()


def discovery_of(address: Address) -> Discovery:
    """Return the discovery that all connections of this event loop to a topology share, with any timeouts."""
    found = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    same = replace(
        address,
        timeout_seconds=TIMEOUT_SECONDS,
        health_check_seconds=HEALTH_CHECK_SECONDS,
        max_connections=1,
    )
    return found.setdefault(same, Discovery(same, topology_of(same)))

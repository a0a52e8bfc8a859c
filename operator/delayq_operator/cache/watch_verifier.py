"""Verifies kopf's events with a separate metadata watch of DelayQueues.

kopf reports neither which DelayQueues a new list lacks, nor that its list or watch is denied. The verifier drops
deleted DelayQueues and fetches versions that kopf has not delivered. If kopf stays behind while the API server answers,
the liveness probe fails.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import KubernetesError
from delayq.kube.objects import name_of

from delayq_operator.base import names
from delayq_operator.base.names import Key

if TYPE_CHECKING:
    from delayq.kube.objects import Kind, Name, Object

    from delayq_operator.cache.queues import Queues
    from delayq_operator.kube.api import Api

PERIOD_SECONDS: Final = 0.5
PATIENCE: Final = 2  # periods; kopf delivers a version within milliseconds, or within seconds after an outage


class WatchVerifier:
    """Compares the versions that kopf delivered with the live ones; a Listener of metadata only."""

    def __init__(self, api: Api, queues: Queues) -> None:
        """`queues`: the cache that kopf updates."""
        self._api, self._queues = api, queues
        self._versions: dict[Key, int] = {}
        self._uids: dict[Key, str] = {}
        self._brought: dict[Key, int] = {}  # versions delivered by kopf, possibly before our own watch
        self._owed: dict[Key, int] = {}  # periods for which a version has not been delivered
        self.behind_seconds = 0.0
        self.listed = asyncio.Event()  # set once every DelayQueue was delivered or fetched

    def seen(self, _kind: Kind, body: Object) -> None:
        """Expect kopf to deliver this version."""
        key, version = Key(*name_of(body)), int(body["metadata"]["resourceVersion"])
        self._versions[key], self._uids[key] = version, body["metadata"]["uid"]
        if version > self._brought.get(key, 0):
            self._owed.setdefault(key, 0)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Drop a DelayQueue, even if kopf missed its deletion."""
        key = Key(*name)
        self._owed.pop(key, None)
        self._versions.pop(key, None)
        self._brought.pop(key, None)
        self._queues.gone(key, self._uids.pop(key, ""))

    def brought(self, key: Key, version: int, *, last: bool = False) -> None:
        """Record that kopf delivered a version, or the deletion of a DelayQueue."""
        self._brought[key] = version
        if last:
            del self._brought[key]
        if version >= self._versions.get(key, 0):
            self._owed.pop(key, None)
        if not self._owed:
            self.listed.set()

    async def run(self) -> None:
        """Verify periodically until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(PERIOD_SECONDS)

    async def step(self) -> None:
        """Fetch versions that kopf has not delivered in time. An outage of the API server does not count."""
        late = [key for key, periods in self._owed.items() if periods >= PATIENCE]
        replies = [await self._fetch(key) for key in late if key == late[0] or not self._has(key)]
        if not late:
            self.behind_seconds = 0.0
        elif replies[0]:
            self.behind_seconds += PERIOD_SECONDS
        if all(map(self._has, self._owed)):
            self.listed.set()
        for key in self._owed:
            self._owed[key] += 1

    def _has(self, key: Key) -> bool:
        return self._queues.version(key) >= self._versions.get(key, 0)

    async def _fetch(self, key: Key) -> bool:
        """Read a DelayQueue from the API server; returns whether it replied."""
        with suppress(KubernetesError):
            body = await self._api.get(names.DELAY_QUEUE, key.namespace, key.name)
            if self._uids.get(key) == body["metadata"]["uid"]:  # otherwise it was deleted meanwhile
                self._queues.seen(body)
            return True
        return False

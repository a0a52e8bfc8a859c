"""A second pair of eyes on DelayQueues: their names and versions, by a watch of our own.

kopf does not tell that a DelayQueue went while its watch was interrupted, and cannot tell that its watch is dead. This
sees both: what is gone is forgotten, and a version that kopf has not brought for long fails the liveness probe.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delayq_operator.names import Key

if TYPE_CHECKING:
    from delayq_operator.inventory import Queues
    from delayq_operator.names import Kind
    from delayq_operator.objects import Name, Object


class Witness:
    """Compares what kopf brought with what there is; a Listener of metadata only."""

    def __init__(self, queues: Queues) -> None:
        """`queues` is what kopf feeds."""
        self._queues = queues
        self._awaited: dict[Key, tuple[int, float]] = {}
        self._uids: dict[Key, str] = {}

    def seen(self, _kind: Kind, body: Object) -> None:
        """Expect kopf to bring this version."""
        metadata = body["metadata"]
        key, version = Key(metadata["namespace"], metadata["name"]), int(metadata["resourceVersion"])
        _, since = self._awaited.get(key, (0, time.monotonic()))
        self._awaited[key], self._uids[key] = (version, since), metadata["uid"]

    def gone(self, _kind: Kind, name: Name) -> None:
        """Forget a DelayQueue, whether or not kopf noticed."""
        key = Key(*name)
        self._awaited.pop(key, None)
        self._queues.gone(key, self._uids.pop(key, ""))

    def behind_seconds(self) -> float:
        """For how long kopf has owed us a version."""
        for key, (version, _) in list(self._awaited.items()):
            if self._queues.version(key) >= version:
                del self._awaited[key]
        return max((time.monotonic() - since for _, since in self._awaited.values()), default=0.0)

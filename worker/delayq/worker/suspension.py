"""Stops the claims of a worker while `delayq suspend` is in effect. Running tasks finish.

The worker reads this with the shard map (resharding/shard_map_sync.py), from shard 0, or from copies if it has never
reached that. Until it has read one, it claims nothing. While Redis does not answer, what it read last holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.protocol.results import Suspension
    from delayq.worker.slots import Slots

log = logging.getLogger(__name__)


class SuspensionGate:
    """What suspends the queue of one worker, besides the document."""

    def __init__(self, slots: Slots) -> None:
        """Nothing is claimed before the first note()."""
        self._slots = slots
        self._known: Suspension | None = None
        slots.suspended = True

    def note(self, found: Suspension | None) -> None:
        """Take what was read; None: nothing suspends the queue."""
        before, self._known = self._known, found
        if found is None:
            if self._slots.suspended:
                self._slots.suspended = False
                self._slots.claim_all()
            if before is not None:
                log.info("queue_resumed")
            return
        if not self._slots.suspended:
            self._slots.suspended = True
            self._slots.begin_calls()
        if found != before:
            fields = {"since_ms": found.since_ms, "drain": found.drain, "reason": found.reason}
            log.warning("queue_suspended", extra={"fields": fields})

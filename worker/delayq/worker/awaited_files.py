"""Keeps a worker from claiming until every mounted file that its handler needs could be read once.

A kubelet mounts a Secret or a key that is created later, within about a minute: so the worker waits, is not ready, and
its readiness names the file. Later changes of the files are no concern of this service (service/mounted.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.contract.files import Reference
    from delayq.worker.slots import Slots

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
IDLE_SECONDS = 3600.0  # once all are there


class AwaitedFiles:
    """The files that the handler of one worker lacks."""

    name, blocks = "awaited_files", False

    def __init__(self, lacks: Callable[[], Mapping[Reference, str]], slots: Slots) -> None:
        """`lacks` looks at the files, and returns those that cannot be used and why."""
        self._lacks, self._slots = lacks, slots
        self.waits_for = ""
        self.alarm = Alarm()
        slots.awaiting, slots.counters.lacks = True, lacks
        self._look()

    def _look(self) -> None:
        self.waits_for = "; ".join(self._lacks().values())

    async def step(self) -> float:
        """Look again; returns the pause until the next look."""
        if self._slots.awaiting:
            self._look()
            if self.waits_for:
                return LOOK_SECONDS
            log.info("secrets_found")
            self._slots.awaiting = False
            self._slots.ring()
        return IDLE_SECONDS

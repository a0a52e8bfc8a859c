"""The listener: an idle worker blocks on the wake lists. Hints make things quick; Exchange makes them sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import Hints
    from delayq.inflight import Slots


class Listener:
    """Waits on the wake lists, on a connection of its own, while the worker has nothing to do and a free slot."""

    name, blocks = "listener", True

    def __init__(self, slots: Slots, broker: Broker, hints: Hints) -> None:
        """Listen on every shard."""
        self._lists = {keys.wake: keys.shard for keys in broker.shards}
        self._hints, self._slots = hints, slots
        self.alarm = slots.listener_alarm

    async def step(self) -> float:
        """Wait for one hint. A worker that is busy or knows of due tasks leaves the hints to others."""
        if self._slots.hinted or self._slots.exchanging or not self._slots.may_claim:
            return 60.0
        woken = await self._hints.wait(list(self._lists))
        if woken is not None:
            self._slots.hint(self._lists[woken])
        return 0.0

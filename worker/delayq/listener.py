"""The listeners: an idle worker blocks on the wake lists, a sleeping scanner on the alarm lists.

Hints make things quick; the Exchange and the ShardScanner look by themselves, which makes them sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.alarm import Alarm

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import Hints
    from delayq.inflight import Slots


IDLE_SECONDS = 60.0  # between looks of a listener with nothing to listen for; ringing its alarm ends it


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
            return IDLE_SECONDS
        woken = await self._hints.wait(list(self._lists))
        if woken is not None:
            self._slots.hint(self._lists[woken])
        return 0.0


class AlarmListener:
    """Waits on the alarm lists of the shards this process leads, on a connection of its own.

    The alarms of shards led elsewhere are not ours to take.
    """

    name, blocks = "alarms", True

    def __init__(self, broker: Broker, hints: Hints) -> None:
        """Listen to nothing yet."""
        self._broker, self._hints = broker, hints
        self._rings: dict[str, Alarm] = {}  # list to the alarm it rings
        self.alarm = Alarm()

    async def listen(self, shard: int, alarm: Alarm | None) -> None:
        """Ring `alarm` for a shard from now on; None stops that."""
        key = self._broker.shards[shard].alarm
        if alarm is None:
            self._rings.pop(key, None)
        else:
            self._rings[key] = alarm
        self.alarm.ring()
        await self._hints.interrupt()

    async def step(self) -> float:
        """Wait for one alarm."""
        if not self._rings:
            return IDLE_SECONDS
        rung = await self._hints.wait(list(self._rings))
        # After an interruption anything may have been on its way to us.
        for key in [rung] if rung else list(self._rings):
            if key in self._rings:
                self._rings[key].ring()
        return 0.0

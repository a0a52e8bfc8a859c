"""The listeners: an idle worker blocks on the wake lists, a sleeping scanner on the alarm lists.

Hints make things quick; the Exchange and the ShardScanner look by themselves, which makes them sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.connection import Hints
    from delayq.protocol.commands import Broker
    from delayq.service.shard_groups import Lane
    from delayq.worker.slots import Desk

IDLE_SECONDS = 60.0  # between looks of a listener with nothing to listen for; ringing its alarm ends it


class Listener:
    """Waits on a lane's wake lists, on a connection of its own, while there is nothing to do and a free slot."""

    blocks = True

    def __init__(self, desk: Desk, broker: Broker, hints: Hints) -> None:
        """Listen on every shard of the lane."""
        self.name = desk.lane.named("listener")
        self._desk, self._broker, self._hints = desk, broker, hints
        self._lists: dict[str, int] = {}
        self.alarm = desk.listener_alarm

    async def step(self) -> float:
        """Wait for one hint. A worker that is busy or knows of due tasks leaves the hints to others."""
        desk = self._desk
        desk.deaf = not desk.slots.may_listen
        if desk.hinted or desk.exchanging or desk.deaf or not desk.lane.shards:
            return IDLE_SECONDS
        self._lists = {self._broker.keys(shard).wake: shard for shard in desk.lane.shards}
        woken = await self._hints.wait(list(self._lists))
        if woken is not None:
            desk.hint(self._lists[woken])
        return 0.0

    async def changed(self) -> None:
        """Listen on other lists, if the lane has other shards now."""
        if set(self._lists.values()) != set(self._desk.lane.shards):
            self.alarm.ring()
            await self._hints.interrupt()


class AlarmListener:
    """Waits on the alarm lists of those shards of a lane that this process leads, on a connection of its own.

    The alarms of shards led elsewhere are not ours to take.
    """

    blocks = True

    def __init__(self, lane: Lane, broker: Broker, hints: Hints) -> None:
        """Listen to nothing yet."""
        self.name = lane.named("alarms")
        self._broker, self._hints = broker, hints
        self._rings: dict[str, Alarm] = {}  # list to the alarm it rings
        self.alarm = Alarm()

    async def listen(self, changes: Mapping[int, Alarm | None]) -> None:
        """Ring these alarms for these shards from now on; None stops that."""
        for shard, alarm in changes.items():
            key = self._broker.keys(shard).alarm
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

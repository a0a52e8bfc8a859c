"""The listeners: an idle worker blocks on the wake lists, a sleeping scanner on the alarm lists.

Hints make things quick; the claim loop and the scanner also look by themselves, which makes them sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.connection import BlockingReads
    from delayq.protocol.commands import Commands
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.slots import GroupState

IDLE_SECONDS = 60.0  # between looks of a listener with nothing to listen for; ringing its alarm ends it


class Listener:
    """Waits on a shard group's wake lists, on a connection of its own, while there is nothing to do and a free slot."""

    blocks = True

    def __init__(self, group_state: GroupState, commands: Commands, blocking_reads: BlockingReads) -> None:
        """Listen on every shard of the shard group."""
        self.name = group_state.group.named("wake_listener")
        self._group_state, self._commands, self._blocking_reads = group_state, commands, blocking_reads
        self._lists: dict[str, int] = {}
        self.alarm = group_state.listener_alarm

    async def step(self) -> float:
        """Wait for one hint. A worker that is busy or knows of due tasks leaves the hints to others."""
        group_state = self._group_state
        group_state.deaf = not group_state.slots.may_listen
        if group_state.hinted or group_state.exchanging or group_state.deaf or not group_state.group.shards:
            return IDLE_SECONDS
        self._lists = {self._commands.keys(shard).wake: shard for shard in group_state.group.shards}
        woken = await self._blocking_reads.wait(list(self._lists))
        if woken is not None:
            group_state.hint(self._lists[woken])
        return 0.0

    async def changed(self) -> None:
        """Listen on other lists, if the shard group has other shards now."""
        if set(self._lists.values()) != set(self._group_state.group.shards):
            self.alarm.ring()
            await self._blocking_reads.interrupt()


class AlarmListener:
    """Waits on the alarm lists of those shards of a shard group that this process leads, on a connection of its own.

    The alarms of shards led elsewhere are not ours to take.
    """

    blocks = True

    def __init__(self, group: ShardGroup, commands: Commands, blocking_reads: BlockingReads) -> None:
        """Listen to nothing yet."""
        self.name = group.named("alarm_listener")
        self._commands, self._blocking_reads = commands, blocking_reads
        self._rings: dict[str, Alarm] = {}  # list to the alarm it rings
        self.alarm = Alarm()

    async def listen(self, changes: Mapping[int, Alarm | None]) -> None:
        """Ring these alarms for these shards from now on; None stops that."""
        for shard, alarm in changes.items():
            key = self._commands.keys(shard).alarm
            if alarm is None:
                self._rings.pop(key, None)
            else:
                self._rings[key] = alarm
        self.alarm.ring()
        await self._blocking_reads.interrupt()

    async def step(self) -> float:
        """Wait for one alarm."""
        if not self._rings:
            return IDLE_SECONDS
        rung = await self._blocking_reads.wait(list(self._rings))
        # After an interruption anything may have been on its way to us.
        for key in [rung] if rung else list(self._rings):
            if key in self._rings:
                self._rings[key].ring()
        return 0.0

"""The listeners: an idle worker blocks on the wake lists, a sleeping scanner on the alarm lists.

Tokens only reduce latency: they may be lost, so the claim loop and the scanner also poll.
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

IDLE_SECONDS = 60.0  # sleep of a listener without lists; its alarm ends it


class Listener:
    """Blocks on a shard group's wake lists, on its own connection, while the worker is idle with a free slot."""

    blocks = True

    def __init__(self, group_state: GroupState, commands: Commands, blocking_reads: BlockingReads) -> None:
        """Listen on every shard of the shard group."""
        self.name = group_state.group.named("wake_listener")
        self._group_state, self._commands, self._blocking_reads = group_state, commands, blocking_reads
        self._lists: dict[str, int] = {}
        self.alarm = group_state.listener_alarm

    async def step(self) -> float:
        """Wait for one wake token. A worker that is busy, has hints or is refused leaves tokens to others."""
        group_state = self._group_state
        group_state.listener_paused = not group_state.slots.may_listen
        busy = group_state.hinted or group_state.exchanging or group_state.listener_paused
        shards = [each for each in group_state.group.shards if not group_state.backoff.refuses(each)]
        if busy or not shards:
            return IDLE_SECONDS
        self._lists = {self._commands.keys(shard).wake: shard for shard in shards}
        woken = await self._blocking_reads.wait(list(self._lists))
        if woken is not None:
            group_state.hint(self._lists[woken])
        return 0.0

    async def changed(self) -> None:
        """Listen on the new lists if the shards of the shard group have changed."""
        if set(self._lists.values()) != set(self._group_state.group.shards):
            self.alarm.ring()
            await self._blocking_reads.interrupt()


class AlarmListener:
    """Blocks on the alarm lists of the shards that this process leads, on its own connection.

    Alarms of other shards are left to their leaders.
    """

    blocks = True

    def __init__(self, group: ShardGroup, commands: Commands, blocking_reads: BlockingReads) -> None:
        """Start without lists."""
        self.name = group.named("alarm_listener")
        self._commands, self._blocking_reads = commands, blocking_reads
        self._rings: dict[str, Alarm] = {}  # list to the alarm it rings
        self.alarm = Alarm()

    async def listen(self, changes: Mapping[int, Alarm | None]) -> None:
        """Set the alarms to ring for these shards; None removes one."""
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
        # After an interruption an alarm may have been lost: ring all.
        for key in [rung] if rung else list(self._rings):
            if key in self._rings:
                self._rings[key].ring()
        return 0.0

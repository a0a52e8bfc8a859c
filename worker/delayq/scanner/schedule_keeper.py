"""Finds the schedules whose time has come, in the shards that this scanner leads.

Of a queue that no longer accepts DelaySchedules, it deletes those that are still there. Not here: what is done with
them (occurrences.py), and who writes definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.scanner.occurrences import OccurrenceWriter
    from delayq.service.shard_groups import ShardGroup

PAGE = 50  # records that one call returns
REST_SECONDS = 60.0


class ScheduleKeeper:
    """Looks at the schedules of one shard group."""

    blocks = False

    def __init__(
        self,
        group: ShardGroup,
        connection: AsyncConnection,
        spec: Spec,
        led: Callable[[], Collection[int]],
        *,
        refuses: str | None = None,
    ) -> None:
        """`led` returns the shards that this process leads; `refuses`: a namespace whose DelaySchedules must go."""
        self.name = group.named("schedule_keeper")
        self._commands, self._connection, self._spec, self._led = group.commands, connection, spec, led
        self._made: OccurrenceWriter | None = None
        self._due = set[int]()
        self._refuses, self._searched = refuses, set[int]()
        self.tended = 0  # schedules, so far
        self.alarm = Alarm()

    @property
    def _writer(self) -> OccurrenceWriter:
        if self._made is None:
            # A queue without schedules does not pay for the libraries.
            from delayq.scanner.occurrences import OccurrenceWriter  # noqa: PLC0415

            self._made = OccurrenceWriter(self._commands, self._connection, self._spec)
        return self._made

    def look(self, shard: int) -> None:
        """Look at the schedules of a shard now."""
        self._due.add(shard)
        self.alarm.ring()

    async def step(self) -> float:
        """Tend the schedules whose time has come; returns the seconds until the next step."""
        for shard in [*self._due]:
            self._due.discard(shard)
            if self._refuses is not None and shard not in self._searched:
                await self._delete_refused(shard, self._refuses)
                self._searched.add(shard)
            offset, entries = 0, PAGE  # the offset: of those whose time stays, which must not hold up others
            while entries == PAGE and shard in self._led():
                call = self._commands.list_schedules(shard, offset=offset, limit=PAGE, due=True)
                page = await self._connection.one(call)
                entries = page.entries
                offset += entries
                for record in page.records:
                    offset -= await self._writer.tend(shard, record, page.now_ms, schedules=page.schedules)
                    self.tended += 1
        return 0.0 if self._due else REST_SECONDS

    async def _delete_refused(self, shard: int, namespace: str) -> None:
        offset, entries = 0, 1
        while entries:  # a page is also short if its records are large
            page = await self._connection.one(self._commands.list_schedules(shard, offset=offset, limit=PAGE))
            entries = page.entries
            offset += entries
            for record in page.records:
                offset -= await self._writer.delete_refused(shard, record, namespace)

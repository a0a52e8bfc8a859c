"""Creates the occurrences of a schedule ahead of time. Not here: when one is due (delayq.schedules)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.protocol.commands import Move
from delayq.protocol.envelope import Occurrence
from delayq.protocol.quota import room
from delayq.schedules.plan import AHEAD_MS, planned
from delayq.schedules.record import alone, at_once, decode, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ScheduleRecord
    from delayq.protocol.scripts import Argument
    from delayq.schedules.plan import Due, Plan

log = logging.getLogger(__name__)

AWAY_MS = 60_000  # until a record that has to migrate is looked at again
UNREADABLE_MS = 600_000  # the same for one that only a newer delayq can read


class OccurrenceWriter:
    """Does what a schedule needs, in whichever shard it is."""

    def __init__(self, commands: Commands, connection: AsyncConnection, spec: Spec) -> None:
        """`spec` has the limits of the queue, and the deadline of its tasks."""
        self._commands, self._connection = commands, connection
        self._limits, self._deadline_ms = spec.limits, spec.delivery.deadline_ms

    async def tend(self, shard: int, record: ScheduleRecord, now_ms: int, ahead_ms: int) -> None:
        """Create what a schedule needs now, as far ahead as asked, and at least AHEAD_MS.

        A change by somebody else meanwhile ends this: its look is due again.
        """
        if record.phase != "on":
            await self._clear(shard, record)
            return
        definition = decode(record)
        if self._commands.shard_of(record.id) != shard:
            await self._store(shard, record, [], Move(record.cursor_ms, now_ms + AWAY_MS))
        elif definition is None:
            log.warning("schedule_unreadable", extra={"fields": {"schedule": record.name}})
            await self._store(shard, record, [], Move(record.cursor_ms, now_ms + UNREADABLE_MS))
        else:
            ahead_ms = max(AHEAD_MS, ahead_ms)
            plan = await planned(definition.schedule, record.cursor_ms, now_ms, ahead_ms=ahead_ms)
            await self._carry_out(shard, record, definition.schedule, plan)

    async def _clear(self, shard: int, record: ScheduleRecord) -> None:
        cursor = b""
        while True:
            call = self._commands.clear_schedule(record.id, record.version, cursor, shard=shard)
            _, cursor = await self._connection.one(call)
            if not cursor:
                return

    async def _carry_out(
        self, shard: int, record: ScheduleRecord, schedule: DelaySchedule, plan: Plan
    ) -> None:
        """Store the occurrences of a plan, a bounded number at a time; the cursor follows."""
        missed, step = plan.missed, at_once(schedule)
        for at in range(0, max(1, len(plan.create)), step):
            some, last = plan.create[at : at + step], at + step >= len(plan.create)
            cursor_ms, look_ms = (plan.cursor_ms, plan.look_ms) if last else (some[-1].nominal_ms, 0)
            move = Move(cursor_ms, look_ms, missed)
            if not await self._store(shard, record, self._encoded(schedule, some), move):
                return
            record, missed = replace(record, cursor_ms=move.cursor_ms), 0
        if plan.missed:
            fields = {"schedule": record.name, "occurrences": plan.missed}
            log.warning("occurrences_missed", extra={"fields": fields})

    def _encoded(self, schedule: DelaySchedule, some: Sequence[Due]) -> list[Argument]:
        found = ((Occurrence(due.nominal_ms, due.within_ms, alone(schedule)), due.due_ms) for due in some)
        return flat(schedule, found, deadline_ms=self._deadline_ms)

    async def _store(
        self, shard: int, record: ScheduleRecord, occurrences: Sequence[Argument], move: Move
    ) -> bool:
        """Store occurrences and change the record; whether that was done."""
        space = room(self._limits, self._commands.shard_map.quota_shards(shard))
        outcome = await self._connection.one(
            self._commands.create_occurrences(shard, record, occurrences, room=space, move=move)
        )
        if outcome == "full":
            fields = {"schedule": record.name, "occurrences": len(occurrences) // 3}
            log.warning("occurrences_refused", extra={"fields": fields})
        return isinstance(outcome, int)

"""Creates the occurrences of a schedule ahead of time. Not here: when one is due (delayq.schedules)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.errors import Unavailable
from delayq.protocol.commands import Move
from delayq.protocol.envelope import Occurrence
from delayq.protocol.quota import room
from delayq.protocol.shard_map import TaskMigrating
from delayq.schedules.plan import most_ahead, planned
from delayq.schedules.record import KUBERNETES, alone, at_once, decode, flat, size

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
FAILED_MS = 60_000  # the same for one that raised an error
UNREADABLE_MS = 600_000  # the same for one that only a newer delayq can read


class OccurrenceWriter:
    """Does what a schedule needs, in whichever shard it is."""

    def __init__(self, commands: Commands, connection: AsyncConnection, spec: Spec) -> None:
        """`spec` has the limits of the queue, and the deadline of its tasks."""
        self._commands, self._connection = commands, connection
        self._limits, self._deadline_ms = spec.limits, spec.delivery.deadline_ms

    async def tend(self, shard: int, record: ScheduleRecord, now_ms: int, *, schedules: int) -> bool:
        """Create what a schedule needs now.

        `schedules`: how many the shard has. False if it was changed meanwhile: its look is due again.
        """
        try:
            if record.phase != "on":
                return await self._clear(shard, record)
            return await self._create(shard, record, now_ms, schedules=schedules)
        except Unavailable:
            raise
        except TaskMigrating:  # another shard has it in a moment
            return False
        except Exception as error:  # noqa: BLE001 -- of one schedule: others must not wait for it
            fields = {"schedule": record.name, "error": str(error)}
            log.warning("schedule_failed", extra={"fields": fields})
            return await self._postpone(shard, record, now_ms + FAILED_MS)

    async def delete_refused(self, shard: int, record: ScheduleRecord, namespace: str) -> bool:
        """Delete what a DelaySchedule of this namespace has left; False if the record is of another owner."""
        definition = decode(record) if record.owner == KUBERNETES else None
        if definition is None or definition.notes.get("namespace") != namespace:
            return False
        space = room(self._limits, self._commands.shard_map.quota_shards(shard))
        call = self._commands.put_schedule(record.id, b"", KUBERNETES, shard=shard, **space)
        done = await self._connection.one(call)
        log.info("schedule_applied", extra={"fields": {"schedule": record.name, "outcome": "deleted"}})
        return await self._clear(shard, replace(record, version=done.version))

    async def _create(self, shard: int, record: ScheduleRecord, now_ms: int, *, schedules: int) -> bool:
        definition = decode(record)
        if self._commands.shard_of(record.id) != shard:
            return await self._postpone(shard, record, now_ms + AWAY_MS)
        if definition is None:
            log.warning("schedule_unreadable", extra={"fields": {"schedule": record.name}})
            return await self._postpone(shard, record, now_ms + UNREADABLE_MS)
        schedule = definition.schedule
        most = most_ahead(size(schedule), schedules, self._commands.shard_map.quota_shards(shard))
        plan = await planned(schedule, record.cursor_ms, now_ms, most=most)
        return await self._carry_out(shard, record, schedule, plan)

    async def _postpone(self, shard: int, record: ScheduleRecord, look_ms: int) -> bool:
        return await self._store(shard, record, [], Move(record.cursor_ms, look_ms)) != "changed"

    async def _clear(self, shard: int, record: ScheduleRecord) -> bool:
        cursor = b""
        while True:
            call = self._commands.clear_schedule(record.id, record.version, cursor, shard=shard)
            _, cursor = await self._connection.one(call)
            if not cursor:
                return True

    async def _carry_out(
        self, shard: int, record: ScheduleRecord, schedule: DelaySchedule, plan: Plan
    ) -> bool:
        """Store the occurrences of a plan, a bounded number at a time; the cursor follows."""
        at, missed, step = 0, plan.missed, at_once(schedule)
        while True:
            some, last = plan.create[at : at + step], at + step >= len(plan.create)
            cursor_ms, look_ms = (plan.cursor_ms, plan.look_ms) if last else (some[-1].nominal_ms, 0)
            move = Move(cursor_ms, look_ms, missed)
            outcome = await self._store(shard, record, self._encoded(schedule, some), move)
            if outcome == "full" and len(some) > 1:
                step = len(some) // 2  # a shard that is almost full has room for some of them
                continue
            if not isinstance(outcome, int):
                break
            record, missed, at = replace(record, cursor_ms=move.cursor_ms), 0, at + step
            if last:
                break
        if outcome == "full":
            fields = {"schedule": record.name, "occurrences": len(plan.create) - at}
            log.warning("occurrences_refused", extra={"fields": fields})
        if plan.missed and not missed:
            fields = {"schedule": record.name, "occurrences": plan.missed}
            log.warning("occurrences_missed", extra={"fields": fields})
        return outcome != "changed"

    def _encoded(self, schedule: DelaySchedule, some: Sequence[Due]) -> list[Argument]:
        found = ((Occurrence(due.nominal_ms, due.within_ms, alone(schedule)), due.due_ms) for due in some)
        return flat(schedule, found, deadline_ms=self._deadline_ms)

    async def _store(
        self, shard: int, record: ScheduleRecord, occurrences: Sequence[Argument], move: Move
    ) -> int | str:
        """Store occurrences and change the record."""
        space = room(self._limits, self._commands.shard_map.quota_shards(shard))
        return await self._connection.one(
            self._commands.create_occurrences(shard, record, occurrences, room=space, move=move)
        )

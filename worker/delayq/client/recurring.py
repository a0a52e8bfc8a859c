"""Operations on recurring schedules. Each method of RecurringSchedules is a generator, as in operations.py.

The scanner creates the occurrences; a client only writes definitions. Definitions have an owner: a write of another one
is refused.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.client.routing import persistently
from delayq.contract.words import OBJECT_NAME
from delayq.errors import NoSuchSchedule, ScheduleRefused
from delayq.protocol.envelope import Occurrence
from delayq.protocol.quota import room
from delayq.schedules.record import (
    CLIENT,
    FILE,
    Definition,
    alone,
    at_once,
    decode,
    encode,
    flat,
    occurrence_id,
    record_id,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.client.operations import Operations
    from delayq.client.routing import Operation
    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import ScheduleRecord, ScheduleWritten

MOST_BACKFILLED = 10_000
_OWNERS = {FILE: "the file of `delayq run`: change that", CLIENT: "a client: use `delayq schedules`"}
_OWNERS["task"] = "a task of an older client that has the ID of its record: cancel it"
_KUBERNETES = "Kubernetes: change the DelaySchedule there"
_NO_ROOM = "it does not fit into the queue's limits; wait until tasks are done, or raise spec.limits"


class ScheduleChange(NamedTuple):
    """What became of a write: created, updated, unchanged or deleted, and how many occurrences were removed."""

    outcome: str
    removed: int


class Backfilled(NamedTuple):
    """The IDs of the occurrences of a range, and how many of them were created; others exist."""

    ids: list[str]
    created: int


class RecurringSchedules:
    """The recurring schedules of one queue."""

    def __init__(self, operations: Operations) -> None:
        """Share the queue and its limits."""
        self._operations, self._homes = operations, operations.homes

    def apply(
        self, schedule: DelaySchedule, *, owner: str = CLIENT, notes: Mapping[str, object] | None = None
    ) -> Operation[ScheduleChange]:
        """Create or change a schedule. `notes`: what its owner keeps beside it."""
        _calendar(schedule)
        body = encode(Definition(schedule, notes or {}))
        return (yield from self._write(schedule.metadata.name, body, owner))

    def delete(self, name: str, *, owner: str = CLIENT) -> Operation[ScheduleChange]:
        """Delete a schedule and what it has created ahead."""
        return (yield from self._write(_checked(name), b"", owner))

    def sync(self, schedules: Sequence[DelaySchedule], owner: str) -> Operation[None]:
        """Make these the schedules of an owner."""
        wanted = {each.metadata.name for each in schedules}
        for each in schedules:
            yield from self.apply(each, owner=owner)
        for record in (yield from self.records()):
            if record.owner == owner and record.name not in wanted and record.phase != "deleting":
                yield from self.delete(record.name, owner=owner)

    def _write(self, name: str, body: bytes, owner: str) -> Operation[ScheduleChange]:
        record, limits = record_id(name), self._operations.limits
        yield from self._homes.known(self._operations.commands.shard_of(record), use=True)

        def put(pinned: Commands, shard: int) -> Call[ScheduleWritten]:
            parts = room(limits, pinned.shard_map.quota_shards(shard))
            return pinned.put_schedule(record, body, owner, shard=shard, **parts)

        done: ScheduleWritten = yield from self._homes.find(
            record, put, lambda each: each.outcome == "not_found"
        )
        if done.outcome == "not_found":
            raise NoSuchSchedule(name)
        if done.outcome in ("owned", "full", "heavy"):
            raise ScheduleRefused(_refusal(name, done))
        if done.outcome == "unchanged":
            return ScheduleChange("unchanged", 0)
        removed, cursor = 0, b""
        while True:  # the scanner does it, too, so that it ends if this process does not

            def clear(pinned: Commands, shard: int, cursor: bytes = cursor) -> Call[tuple[int, bytes]]:
                return pinned.clear_schedule(record, done.version, cursor, shard=shard)

            some, cursor = yield from self._homes.find(record, clear, lambda each: each == (0, b""))
            removed += some
            if not cursor:
                return ScheduleChange("deleted" if done.outcome == "deleting" else done.outcome, removed)

    def records(self) -> Operation[list[ScheduleRecord]]:
        """Return all records by name."""
        pinned = yield from self._homes.fetch_shard_map()
        found: dict[str, ScheduleRecord] = {}
        for shard in range(pinned.shard_map.widest):
            offset = 0
            while True:
                [page] = yield from persistently([pinned.list_schedules(shard, offset=offset)])
                found |= {record.name: record for record in page.records}
                offset += page.entries
                if not page.entries:
                    break
        return [found[name] for name in sorted(found)]

    def run_now(self, name: str) -> Operation[str]:
        """Create an occurrence whose nominal time is now, by the local clock; returns its ID."""
        record, schedule = yield from self._one(name)
        now_ms = time.time_ns() // 1_000_000
        created = yield from self._create(record, schedule, [Occurrence(now_ms, alone=alone(schedule))])
        if not created:
            raise ScheduleRefused(f"schedule {name}: {occurrence_id(name, now_ms)} exists already")
        return occurrence_id(name, now_ms)

    def backfill(self, name: str, from_ms: int, before_ms: int, *, dry_run: bool) -> Operation[Backfilled]:
        """Create the occurrences of a range. They run beside each other, whatever concurrencyPolicy says."""
        record, schedule = yield from self._one(name)
        times = [
            each.nominal.at_ms
            for each in islice(_calendar(schedule).after(from_ms - 1), MOST_BACKFILLED + 1)
            if each.nominal.at_ms < before_ms
        ]
        if len(times) > MOST_BACKFILLED:
            raise ScheduleRefused(
                f"backfill: expected at most {MOST_BACKFILLED:,} occurrences; choose a shorter range"
            )
        ids, created = [occurrence_id(name, at_ms) for at_ms in times], 0
        step = at_once(schedule)
        for at in range(0, 0 if dry_run else len(times), step):
            some = [Occurrence(at_ms) for at_ms in times[at : at + step]]
            created += yield from self._create(record, schedule, some)
        return Backfilled(ids, created)

    def _create(
        self, record: ScheduleRecord, schedule: DelaySchedule, occurrences: Sequence[Occurrence]
    ) -> Operation[int]:
        """Store occurrences that are due now; returns how many are new."""
        now_ms = time.time_ns() // 1_000_000
        due = ((each, now_ms) for each in occurrences)
        arguments = flat(schedule, due, deadline_ms=self._operations.deadline_ms)

        def create(pinned: Commands, shard: int) -> Call[int | str]:
            parts = room(self._operations.limits, pinned.shard_map.quota_shards(shard))
            return pinned.create_occurrences(shard, record, arguments, room=parts)

        outcome = yield from self._homes.find(record.id, create, lambda each: each == "changed")
        if isinstance(outcome, int):
            return outcome
        why = _NO_ROOM if outcome == "full" else "it was changed meanwhile; try again"
        raise ScheduleRefused(f"schedule {record.name}: {why}")

    def _one(self, name: str) -> Operation[tuple[ScheduleRecord, DelaySchedule]]:
        _checked(name)
        found = [
            each for each in (yield from self.records()) if each.name == name and each.phase != "deleting"
        ]
        if not found:
            raise NoSuchSchedule(name)
        definition = decode(found[0])
        if definition is None:
            raise ScheduleRefused(f"schedule {name}: a newer delayq wrote it; update this one")
        return found[0], definition.schedule


def _refusal(name: str, done: ScheduleWritten) -> str:
    if done.outcome == "owned":
        return f"schedule {name} belongs to {_OWNERS.get(done.owner, _KUBERNETES)}"
    return f"schedule {name}: {_NO_ROOM}"


def _calendar(schedule: DelaySchedule) -> Any:  # noqa: ANN401 -- delayq.schedules.times.Calendar
    """Return the times of a schedule; SpecError if it has none. The libraries of a plain client do not suffice."""
    try:
        from delayq.schedules.times import Calendar  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ScheduleRefused(f"schedules need {error.name}: pip install 'delayq[cli]'") from error
    return Calendar(schedule)


def _checked(name: str) -> str:
    if OBJECT_NAME.fits(name):
        return name
    raise ScheduleRefused(f"name of a schedule: expected {OBJECT_NAME.expected}, got {name!r:.80}")

"""Operations on recurring schedules. Each method of RecurringSchedules is a generator, as in operations.py.

The scanner creates the occurrences; a client only writes definitions. Definitions have an owner: a write of another one
is refused.
"""

from __future__ import annotations

import re
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import NewTask, TaskEncoder, check_whole
from delayq.client.routing import AGAIN_SECONDS, persistently
from delayq.contract.problems import SpecError
from delayq.contract.words import OBJECT_NAME
from delayq.errors import NoSuchSchedule, Refused, ScheduleRefused
from delayq.protocol.envelope import Occurrence
from delayq.protocol.quota import room
from delayq.scaling.sentences import counted
from delayq.schedules.record import (
    APP,
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
from delayq.schedules.stored import Schedule, times_module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.client.operations import Operations
    from delayq.client.routing import Operation
    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import ScheduleRecord, ScheduleWritten

MOST_BACKFILLED = 10_000
_OWNER = re.compile(r"[!-~]{1,200}")  # no spaces: it is one word of the record's state
_OWNERS = {FILE: "the file of `delayq run`: change that", CLIENT: "a client: use `delayq cron`"}
_KUBERNETES = "Kubernetes: change the DelaySchedule there"
_APP = (
    "the App {}: change its code, or name this schedule otherwise; if that App is gone or was renamed, "
    "`delayq cron delete QUEUE NAME --force` deletes it"
)
_NO_ROOM = "it does not fit into the queue's limits; wait until tasks are done, or raise spec.limits"


class ScheduleChange(NamedTuple):
    """What became of a write."""

    outcome: str
    """created, updated, unchanged or deleted."""
    removed: int
    """How many occurrences were removed that had been created ahead."""

    def __str__(self) -> str:
        """Say it in words."""
        removed = f", removed {counted(self.removed, 'occurrence')} created ahead" if self.removed else ""
        return f"{self.outcome}{removed}"


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
        self,
        schedule: DelaySchedule,
        *,
        owner: str = CLIENT,
        notes: Mapping[str, object] | None = None,
        checked: bool = False,
    ) -> Operation[ScheduleChange]:
        """Create or change a schedule. `notes`: what its owner keeps beside it; `checked`: its times were checked."""
        for _ in () if checked else times_module().checking(schedule):
            yield 0.0
        name, task = schedule.metadata.name, schedule.spec.task
        try:
            TaskEncoder(self._operations.limits).prepare(
                NewTask(task.value, delay_ms=0, headers=task.headers), iter([name])
            )
        except Refused as error:
            raise ScheduleRefused(f"schedule {name}: {error}") from error
        return (yield from self._write(name, encode(Definition(schedule, notes or {})), owner))

    def delete(self, name: str, *, owner: str = CLIENT) -> Operation[ScheduleChange]:
        """Delete a schedule and what it has created ahead."""
        return (yield from self._write(_checked(name), b"", owner))

    def sync(
        self, schedules: Sequence[DelaySchedule], owner: str, source: str
    ) -> Operation[dict[str, ScheduleChange]]:
        """Make these the schedules of an owner that come from a source; raises what was refused at the end."""
        wanted, notes = {each.metadata.name for each in schedules}, {"source": source} if source else {}
        refused: list[ScheduleRefused] = []
        done: dict[str, ScheduleChange] = {}
        for record in (yield from self.records()):
            mine = record.owner == owner and record.name not in wanted and record.phase != "deleting"
            definition = decode(record) if mine else None
            if definition is None or definition.notes.get("source", "") != source:
                continue
            try:
                done[record.name] = yield from self.delete(record.name, owner=owner)
            except NoSuchSchedule:
                pass  # another process has deleted it
            except ScheduleRefused as error:
                refused.append(error)
        for each in schedules:
            try:
                done[each.metadata.name] = yield from self.apply(each, owner=owner, notes=notes)
            except ScheduleRefused as error:
                refused.append(error)
            except SpecError as error:
                refused.append(ScheduleRefused(f"schedule {each.metadata.name}: {error}"))
        if refused:
            raise ScheduleRefused("; ".join(map(str, refused)), refused[0].reason)
        return done

    def _write(self, name: str, body: bytes, owner: str) -> Operation[ScheduleChange]:
        if not _OWNER.fullmatch(owner):
            expected = "expected 1 to 200 letters, digits and signs of ASCII, and no space"
            raise ScheduleRefused(f"owner of schedule {name}: {expected}, got {owner!r:.80}")
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
        if done.outcome == "owned":
            raise ScheduleRefused(f"schedule {name} belongs to {_belongs_to(done.owner)}", "NameConflict")
        if done.outcome in ("full", "heavy"):
            raise ScheduleRefused(f"schedule {name}: {_NO_ROOM}", "QueueFull")
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

    def schedules(self) -> Operation[list[Schedule]]:
        """Return all schedules by name."""
        return [Schedule.of(each) for each in (yield from self.records())]

    def get(self, name: str) -> Operation[Schedule | None]:
        """Return a schedule; None if there is none of this name."""
        found, _ = yield from self._listed()
        record = found.get(_checked(name))
        return None if record is None else Schedule.of(record)

    def records(self) -> Operation[list[ScheduleRecord]]:
        """Return all records by name."""
        found, _ = yield from self._listed()
        return [found[name] for name in sorted(found)]

    def _listed(self) -> Operation[tuple[dict[str, ScheduleRecord], int]]:
        """Return all records, and Redis' time.

        It reads twice if that may miss some: a record changes its place between two pages, or migrates.
        """
        pinned = yield from self._homes.fetch_shard_map()
        moves, several, now_ms = pinned.shard_map.moves, False, 0
        found: dict[str, ScheduleRecord] = {}
        for again in (False, True):
            if again and not (moves or several):
                break
            if again and moves:
                yield AGAIN_SECONDS
            for shard in range(pinned.shard_map.widest):
                offset, entries = 0, 1
                while entries:
                    [page] = yield from persistently([pinned.list_schedules(shard, offset=offset)])
                    found |= {record.name: record for record in page.records}
                    several = several or bool(offset and page.entries)
                    entries, offset, now_ms = page.entries, offset + page.entries, page.now_ms
        return found, now_ms

    def run_now(self, name: str) -> Operation[str]:
        """Create an occurrence whose nominal time is now; returns its ID."""
        record, schedule, now_ms = yield from self._one(name)
        # One that exists is that of a call whose reply was lost.
        yield from self._create(record, schedule, [Occurrence(now_ms, alone=alone(schedule))], now_ms)
        return occurrence_id(name, now_ms)

    def backfill(
        self, name: str, since_ms: int | None, before_ms: int | None, *, dry_run: bool
    ) -> Operation[Backfilled]:
        """Create the occurrences of a range. They run beside each other: concurrencyPolicy does not apply.

        Times that are not past, or that the scanner has still to create, are not among them.
        """
        if since_ms is None or before_ms is None:
            given = f"since={since_ms!r} and before={before_ms!r}"
            raise ValueError(f"since: expected it and before, as datetimes with their zone, got {given}")
        check_whole("since_ms", since_ms)
        check_whole("before_ms", before_ms)
        record, schedule, now_ms = yield from self._one(name)
        last_ms = min(before_ms - 1, now_ms if schedule.spec.suspend else min(record.cursor_ms, now_ms))
        nominal = (each.nominal.at_ms for each in times_module().Calendar(schedule).after(since_ms - 1))
        times = list(islice(takewhile(lambda at_ms: at_ms <= last_ms, nominal), MOST_BACKFILLED + 1))
        if len(times) > MOST_BACKFILLED:
            raise ScheduleRefused(
                f"backfill: expected at most {MOST_BACKFILLED:,} occurrences; choose a shorter range"
            )
        ids, created = [occurrence_id(name, at_ms) for at_ms in times], 0
        step = at_once(schedule)
        for at in range(0, 0 if dry_run else len(times), step):
            some = [Occurrence(at_ms, backfilled=True) for at_ms in times[at : at + step]]
            created += yield from self._create(record, schedule, some, now_ms)
        return Backfilled(ids, created)

    def _create(
        self,
        record: ScheduleRecord,
        schedule: DelaySchedule,
        occurrences: Sequence[Occurrence],
        now_ms: int,
    ) -> Operation[int]:
        """Store occurrences that are due now; returns how many are new."""
        due = ((each, now_ms) for each in occurrences)
        arguments = flat(schedule, due, deadline_ms=self._operations.deadline_ms)

        def create(pinned: Commands, shard: int) -> Call[int | str]:
            parts = room(self._operations.limits, pinned.shard_map.quota_shards(shard))
            return pinned.create_occurrences(shard, record, arguments, room=parts)

        outcome = yield from self._homes.find(record.id, create, lambda each: each == "changed")
        if isinstance(outcome, int):
            return outcome
        if outcome == "full":
            raise ScheduleRefused(f"schedule {record.name}: {_NO_ROOM}", "QueueFull")
        raise ScheduleRefused(f"schedule {record.name}: it was changed meanwhile; try again")

    def _one(self, name: str) -> Operation[tuple[ScheduleRecord, DelaySchedule, int]]:
        """Return a schedule, and Redis' time."""
        _checked(name)
        found, now_ms = yield from self._listed()
        record = found.get(name)
        if record is None or record.phase == "deleting":
            raise NoSuchSchedule(name)
        definition = decode(record)
        if definition is None:
            raise ScheduleRefused(f"schedule {name}: a newer delayq wrote it; update this one")
        return record, definition.schedule, now_ms


def _belongs_to(owner: str) -> str:
    """Return who owns a schedule, and what to do."""
    if owner.startswith(APP):
        return _APP.format(owner.removeprefix(APP))
    return _OWNERS.get(owner, _KUBERNETES)


def _checked(name: str) -> str:
    if OBJECT_NAME.fits(name):
        return name
    raise ScheduleRefused(f"name of a schedule: expected {OBJECT_NAME.expected}, got {name!r:.80}")

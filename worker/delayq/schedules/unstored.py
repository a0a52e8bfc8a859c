"""When occurrences of schedules are due that Redis does not store yet, from the definitions. No I/O.

Redis has those of the next minutes (plan.py). Who looks further ahead adds the others.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.contract.problems import SpecError
from delayq.protocol.results import Selection
from delayq.schedules.record import decode, record_id
from delayq.schedules.times import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.results import ScheduleRecord

MOST: Final = 100_000
"""Occurrences that are computed, of all schedules together: those of each second for a day. Half a second; for cron
expressions in a zone, up to 20."""
ALL: Final = Selection()


class Unstored(NamedTuple):
    """Due times of occurrences, ms, in order."""

    due_ms: Sequence[int]
    counted_until_ms: Mapping[str, int]
    """Of each schedule with too many: from when on they are not counted."""

    def due_by(self, at_ms: int) -> int:
        """Return how many are due at an instant."""
        return bisect_right(self.due_ms, at_ms)


def unstored(
    records: Sequence[ScheduleRecord], now_ms: int, until_ms: int, chosen: Selection = ALL
) -> Unstored:
    """Return the selected occurrences up to an instant. Each schedule has an even part of MOST."""
    part, found, cut = max(1, MOST // max(1, len(records))), list[int](), dict[str, int]()
    for record in records:
        times = list(islice(due_times(record, now_ms, until_ms, chosen), part + 1))
        if len(times) > part:
            cut[record.name] = times.pop()
        found += times
    return Unstored(sorted(found), cut)


def due_times(record: ScheduleRecord, now_ms: int, until_ms: int, chosen: Selection = ALL) -> Iterator[int]:
    """Yield when selected occurrences of a schedule are due that are not stored, in order.

    There are none of a definition that this delayq, or this machine with its time zones, cannot read.
    """
    from_ms, last_ms = chosen.due_from_ms or 0, min(until_ms, (chosen.due_before_ms or until_ms + 1) - 1)
    definition = decode(record) if record.phase != "deleting" and record.cursor_ms < last_ms else None
    if definition is None or not _selects(chosen, definition.schedule):
        return
    after_ms = max(record.cursor_ms, now_ms, from_ms - definition.schedule.spec.jitter_seconds * 1000 - 1)
    try:
        calendar = Calendar(definition.schedule)
    except SpecError:
        return
    for each in calendar.after(after_ms):
        if each.due_ms > last_ms:
            return
        if each.due_ms >= from_ms:
            yield each.due_ms


def _selects(chosen: Selection, schedule: DelaySchedule) -> bool:
    """Whether the occurrences have the kind and the tag; suspended schedules have none."""
    task = schedule.spec.task
    tags = (record_id(schedule.metadata.name), *(task.tags or ()))
    return (
        not schedule.spec.suspend
        and chosen.kind in {None, task.kind}
        and (chosen.tag is None or chosen.tag in tags)
    )

"""A schedule as a queue stores it, readable: what the clients return. Not here: how it is stored (record.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self
from zoneinfo import ZoneInfo

from delayq.contract.schedule import DelaySchedule, read_instant
from delayq.errors import ScheduleRefused
from delayq.protocol.results import ScheduleRecord
from delayq.schedules.record import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The occurrence of a schedule that began last."""

    id: str
    """The ID of its task, such as @nightly@2026-12-01T02:00:00Z."""
    began: datetime
    """In UTC."""
    lateness: timedelta
    """From its due time to its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring schedule of a queue. Exactly one of `cron`, `every` and `times` is set, unless `definition` is None.

    `next_times()` says when it is due next.
    """

    name: str
    cron: str | None = None
    """Times of day and days, in `time_zone`."""
    every: timedelta | None = None
    """A fixed interval."""
    times: tuple[datetime, ...] | None = None
    """A list of instants."""
    time_zone: str = "UTC"
    """Of `cron`, a name of the IANA database."""
    kind: str | None = None
    """The kind of its tasks; None: tasks without a kind."""
    version: int | None = None
    """The version of the kind."""
    payload: object = None
    """The JSON value that the handler gets; of a kind, its arguments by name."""
    suspended: bool = False
    """Whether there are no occurrences for now."""
    owner: str
    """Who may change it: `client`, `file` (of `delayq run`), `kubernetes`, or `app/NAME` of an App."""
    deleting: bool
    """Whether it was deleted, and occurrences that have not begun still have to be removed."""
    missed: int
    """How many occurrences could not begin in time."""
    skipped: int
    """How many occurrences did not begin because another one ran."""
    last_run: LastRun | None
    """None: no occurrence has begun."""
    definition: DelaySchedule | None = field(repr=False)
    """The whole document; None: a newer delayq wrote the schedule, and this one cannot read it."""
    record: ScheduleRecord = field(repr=False)
    """How Redis stores it, for delayq's own tools: its form may change."""

    @classmethod
    def of(cls, record: ScheduleRecord) -> Self:
        """Return the schedule of a record."""
        read = decode(record)
        return cls(
            name=record.name,
            owner=record.owner,
            deleting=record.phase == "deleting",
            missed=record.missed,
            skipped=record.skipped,
            last_run=_last_run(record),
            definition=None if read is None else read.schedule,
            record=record,
            **({} if read is None else _readable(read.schedule)),
        )

    @property
    def when(self) -> str:
        """When it recurs, in words: `0 2 * * * Europe/Lisbon`, `every 90 s, suspended`."""
        return "written by a newer delayq" if self.definition is None else in_words(self.definition)

    def next_times(self, count: int = 1, *, after: datetime | None = None) -> list[datetime]:
        """Return when the next occurrences are due, jitter included, in the time zone of the schedule.

        `after` is an aware datetime, by default now. There are fewer than `count` if the schedule ends, and none while
        it is suspended. ScheduleRefused if a library is missing, SpecError if this machine lacks the time zone.
        """
        return list(islice(self._due(datetime.now(UTC) if after is None else after), count))

    def _due(self, after: datetime) -> Iterator[datetime]:
        if self.definition is None or self.suspended or self.deleting:
            return
        spec = self.definition.spec
        calendar = times_module().Calendar(self.definition)
        zone: tzinfo = UTC if spec.time_zone is None else ZoneInfo(spec.time_zone)
        after_ms = (after - _EPOCH) // _MS
        for each in calendar.after(after_ms - spec.jitter_seconds * 1000):
            if each.due_ms > after_ms:
                yield (_EPOCH + each.due_ms * _MS).astimezone(zone)


def in_words(schedule: DelaySchedule) -> str:
    """Return when a schedule recurs: `0 2 * * * Europe/Lisbon`, `every 90 s, suspended`."""
    spec = schedule.spec
    suspended = ", suspended" if spec.suspend else ""
    if spec.cron is not None:
        return f"{spec.cron} {spec.time_zone or 'UTC'}{suspended}"
    if spec.every_seconds is not None:
        return f"every {spec.every_seconds} s{suspended}"
    count = len(spec.times or ())
    return f"{count} {'time' if count == 1 else 'times'}{suspended}"


def times_module() -> Any:  # noqa: ANN401 -- a module
    """Return delayq.schedules.times. The libraries of a plain client do not suffice."""
    try:
        from delayq.schedules import times  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ScheduleRefused(f"schedules need {error.name}: pip install 'delayq[cli]'") from error
    return times


def _readable(schedule: DelaySchedule) -> dict[str, Any]:
    spec, task = schedule.spec, schedule.spec.task
    return {
        "cron": spec.cron,
        "every": None if spec.every_seconds is None else timedelta(seconds=spec.every_seconds),
        "times": None if spec.times is None else tuple(map(read_instant, spec.times)),
        "time_zone": spec.time_zone or "UTC",
        "kind": task.kind,
        "version": None if task.kind is None else task.version or 1,
        "payload": task.value,
        "suspended": spec.suspend,
    }


def _last_run(record: ScheduleRecord) -> LastRun | None:
    if record.last_id is None or record.last_began_ms is None or record.last_late_ms is None:
        return None
    began, lateness = _EPOCH + record.last_began_ms * _MS, record.last_late_ms * _MS
    return LastRun(id=record.last_id, began=began, lateness=lateness)

"""The DelaySchedule document: when a task recurs, and the task."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from delayq.contract.fields import (
    choice,
    constant,
    dictionary,
    flag,
    json_text,
    listing,
    section,
    text,
    whole,
)
from delayq.contract.json_text import parsed
from delayq.contract.queue import GROUP, VERSION, Metadata
from delayq.contract.record import Rule, Shape, needing
from delayq.contract.words import (
    CRON,
    HEADER_NAME,
    HEADER_VALUE,
    INSTANT,
    OBJECT_NAME,
    TAG,
    TASK_KIND,
    TIME_ZONE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND: Final = "DelaySchedule"
_TEN_YEARS: Final = 315_360_000
_YEAR: Final = 31_536_000
MOST_TIMES: Final = 1000

Gap = Literal["RunAfter", "Skip"]
Overlap = Literal["First", "Both"]
MisfirePolicy = Literal["RunOnce", "RunAll", "Skip"]
ConcurrencyPolicy = Literal["Allow", "Forbid"]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BELOW_MICROSECOND: Final = re.compile(r"[.,][0-9]{6}([0-9]+)")


def milliseconds(instant: str) -> int:
    """Return the Unix time of an INSTANT, rounded up to ms; ValueError for a day that does not exist."""
    return -((_EPOCH - read_instant(instant)) // timedelta(milliseconds=1))


def read_instant(text: str) -> datetime:
    """Parse an ISO 8601 time, rounded up to a microsecond: Python drops further digits, and no task starts early."""
    at, further = datetime.fromisoformat(text), _BELOW_MICROSECOND.search(text)
    return at + timedelta(microseconds=1) if further and further[1].strip("0") else at


def not_allowed(queue_name: str) -> str:
    """Say what a DelayQueue lacks that accepts no DelaySchedules."""
    return f'DelayQueue {queue_name} accepts no DelaySchedules: add "schedules: {{}}" to its spec'


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRef:
    """A DelayQueue in the namespace of the schedule."""

    SHAPE: ClassVar[Shape] = Shape(atomic=True)

    name: str = text(OBJECT_NAME, doc="Name of the DelayQueue.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaylightSaving:
    """What happens to times of day that a change to or from daylight saving time skips or repeats."""

    gap: Gap | None = choice(
        "RunAfter",
        "Skip",
        default=None,
        doc="A time of day that does not exist: RunAfter runs when the clocks have gone forward. Absent: RunAfter, but "
        "Skip if the minute or the hour of the expression begins with an asterisk.",
    )
    overlap: Overlap | None = choice(
        "First",
        "Both",
        default=None,
        doc="A time of day that exists twice. Absent: First, but Both if the minute or the hour begins with an "
        "asterisk.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfire:
    """What happens to occurrences that could not start in time, as after an outage."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(
            Rule(
                "maxRuns needs policy RunAll",
                ("policy", "max_runs"),
                lambda policy, runs: runs is None or policy == "RunAll",
                "!has(self.maxRuns) || (has(self.policy) && self.policy == 'RunAll')",
            ),
            Rule(
                "policy Skip needs maxLatenessSeconds",
                ("policy", "max_lateness_seconds"),
                lambda policy, seconds: policy != "Skip" or seconds is not None,
                "!has(self.policy) || self.policy != 'Skip' || has(self.maxLatenessSeconds)",
            ),
        )
    )

    policy: MisfirePolicy = choice(
        "RunOnce",
        "RunAll",
        "Skip",
        default="RunOnce",
        doc="RunOnce: of several occurrences that are due, only the latest starts. RunAll: each starts. Skip: none "
        "starts later than maxLatenessSeconds.",
    )
    max_lateness_seconds: int | None = whole(
        1,
        _YEAR,
        default=None,
        doc="How late an occurrence may start; later ones are missed. Absent: no limit.",
    )
    max_runs: int | None = whole(
        1,
        1000,
        default=None,
        doc="Most occurrences of the past that RunAll starts, the latest ones. Absent: 1000.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTask:
    """The task of each occurrence."""

    SHAPE: ClassVar[Shape] = Shape(rules=(needing("version", "kind"),))

    kind: str | None = text(TASK_KIND, default=None, doc="Kind of the task. Absent: a task without a kind.")
    version: int | None = whole(1, 65_535, default=None, doc="Version of the kind. Absent: 1.")
    payload: str | None = json_text(
        doc="Payload, any JSON value as text; of a kind, its arguments by name. Absent: null, or {} for a task with a "
        "kind."
    )
    headers: Mapping[str, str] = dictionary(
        name=HEADER_NAME, value=HEADER_VALUE, most=64, doc="Headers of the task; not a place for secrets."
    )
    deadline_seconds: int | None = whole(
        1,
        _TEN_YEARS,
        default=None,
        doc="Time after its due time in which the task may start; a later one becomes a dead letter. Absent: "
        "spec.delivery.deadlineSeconds of the queue.",
    )
    tags: tuple[str, ...] | None = listing(TAG, least=1, most=8, default=None, doc="Tags of the task.")

    @property
    def value(self) -> object:
        """The payload as handlers get it."""
        if self.payload is not None:
            return parsed(self.payload)
        return None if self.kind is None else {}


def _ends_after_start(start: str | None, end: str | None) -> bool:
    try:
        return start is None or end is None or milliseconds(start) <= milliseconds(end)
    except ValueError:  # no such day; delayq.schedules names it
        return True


def _jitter_fits(every_seconds: int | None, jitter: int) -> bool:
    return every_seconds is None or jitter < every_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """When the task recurs, and the task: exactly one of cron, everySeconds, times."""

    SHAPE: ClassVar[Shape] = Shape(
        one_of=("cron", "every_seconds", "times"),
        rules=(
            needing("time_zone", "cron"),
            needing("daylight_saving", "cron"),
            needing("anchor_time", "every_seconds"),
            Rule(
                "endTime must not be before startTime",
                ("start_time", "end_time"),
                _ends_after_start,
                "!has(self.startTime) || !has(self.endTime) || timestamp(self.startTime) <= timestamp(self.endTime)",
            ),
            Rule(
                "jitterSeconds must be less than everySeconds",
                ("every_seconds", "jitter_seconds"),
                _jitter_fits,
                "!has(self.everySeconds) || self.jitterSeconds < self.everySeconds",
            ),
        ),
    )

    queue_ref: QueueRef = section(
        QueueRef, doc="The queue that the tasks go to. Cannot be changed later.", immutable=True
    )
    cron: str | None = text(
        CRON,
        default=None,
        doc="Times of day and days, as a cron expression of five fields with spaces between them. It has no seconds, "
        "no @every (set everySeconds), no ? (write *) and no TZ= (set timeZone).",
    )
    every_seconds: int | None = whole(
        1, _YEAR, default=None, doc="Time between two occurrences. It is the same when clocks change."
    )
    times: tuple[str, ...] | None = listing(
        INSTANT, least=1, most=MOST_TIMES, default=None, doc="A list of instants, in any order."
    )
    anchor_time: str | None = text(
        INSTANT,
        default=None,
        doc="An instant from which everySeconds counts, in both directions. Absent: 1970-01-01T00:00:00Z.",
    )
    time_zone: str | None = text(
        TIME_ZONE, default=None, doc="Time zone of cron, a name of the IANA database. Absent: UTC."
    )
    daylight_saving: DaylightSaving | None = section(
        DaylightSaving,
        default=None,
        doc="What happens when daylight saving time begins or ends. Absent: the rules of Debian's cron.",
    )
    jitter_seconds: int = whole(
        0,
        86_400,
        default=0,
        doc="Spreads due times: delays each occurrence by up to this time. The delay of an occurrence never changes.",
    )
    start_time: str | None = text(INSTANT, default=None, doc="No occurrence is before this instant.")
    end_time: str | None = text(INSTANT, default=None, doc="No occurrence is after this instant.")
    suspend: bool = flag(default=False, doc="Whether there are no occurrences for now.")
    misfire: Misfire = section(
        Misfire, default=Misfire(), doc="What happens to occurrences that could not start in time."
    )
    concurrency_policy: ConcurrencyPolicy = choice(
        "Allow",
        "Forbid",
        default="Allow",
        doc="Forbid: an occurrence does not start while the one before it runs or waits for a retry.",
    )
    task: ScheduledTask = section(ScheduledTask, default=ScheduledTask(), doc="The task of each occurrence.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMetadata(Metadata):
    """The Kubernetes metadata that delayq reads; other fields are ignored."""

    name: str = text(OBJECT_NAME, doc="Name of the DelaySchedule; the IDs of its tasks contain it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySchedule:
    """A task that recurs in a queue."""

    SHAPE: ClassVar[Shape] = Shape(ignored=("status",))

    api_version: str = constant(f"{GROUP}/{VERSION}", doc="Version of this format.")
    kind: str = constant(KIND, doc="Kind of this document.")
    metadata: ScheduleMetadata = section(ScheduleMetadata, doc="Name and namespace.")
    spec: ScheduleSpec = section(ScheduleSpec, doc="When, and what.")

"""spec.limits, spec.retention and spec.objective: how much, for how long, and how late at most."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from delayq.contract.fields import section, text, whole
from delayq.contract.record import Shape, needing
from delayq.contract.words import PERCENTILE

_TEN_YEARS: Final = 315_360_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many tasks the queue accepts, and how many may start; it refuses to schedule what it does not accept."""

    SHAPE: ClassVar[Shape] = Shape(rules=(needing("burst", "rate_per_second"),))

    max_length: int = whole(
        1,
        1_000_000_000,
        default=10_000_000,
        doc="Most tasks in the queue, waiting or in flight. The limit is divided equally among the shards.",
    )
    max_delay_seconds: int = whole(
        1, _TEN_YEARS, default=31_536_000, doc="Furthest into the future that a task may fall due."
    )
    max_payload_bytes: int = whole(1, 16_777_216, default=262_144, doc="Largest payload of a task.")
    max_header_bytes: int = whole(0, 65_536, default=8192, doc="Most bytes of a task's headers together.")
    max_bytes: int | None = whole(
        1_048_576,
        1 << 50,
        default=None,
        doc="Most bytes of all IDs and envelopes, dead letters included, divided equally among the shards. "
        "Absent: 2147483648 (2 GiB), or 32 MiB for each shard if that is more.",
    )
    rate_per_second: int | None = whole(
        1,
        1_000_000,
        default=None,
        doc="Most tasks that all workers together start per second, on average. After an idle time, burst - 1 more "
        "may start in the first second. The limit is divided equally among the shards. Absent: no limit.",
    )
    burst: int | None = whole(
        1,
        1_000_000,
        default=None,
        doc="Most tasks that start at once after an idle time. A burst below ratePerSecond / 50 lowers the rate that "
        "the queue reaches. Absent: ratePerSecond, so almost twice as many start in the first second.",
    )
    max_in_flight: int | None = whole(
        1,
        10_000_000,
        default=None,
        doc="Most tasks in flight at a time, of all workers together. The limit is divided equally among the shards. "
        "Absent: no limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How long, how many and how large: a task leaves the history at the first of these limits, the oldest first."""

    seconds: int = whole(1, _TEN_YEARS, doc="Longest that a finished task is remembered.")
    count: int = whole(
        1,
        10_000_000,
        default=100_000,
        doc="Most finished tasks that are remembered, divided equally among the shards.",
    )
    bytes: int = whole(
        1_048_576,
        1 << 40,
        default=67_108_864,
        doc="Most memory of Redis for them, divided equally among the shards. Each takes about 170 bytes and twice "
        "its ID.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """How long, and how many: a dead letter is purged at the first of these limits, the oldest first."""

    seconds: int = whole(60, _TEN_YEARS, default=1_209_600, doc="Longest that a dead letter is kept.")
    count: int = whole(
        0,
        10_000_000,
        default=10_000,
        doc="Most dead letters that are kept, divided equally among the shards.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long dead letters and finished tasks are kept; the oldest go first."""

    SHAPE: ClassVar[Shape] = Shape(
        renamed=(
            ("deadLetterRetentionSeconds", "write deadLetters.seconds"),
            ("deadLetterCount", "write deadLetters.count"),
        )
    )

    dead_letters: DeadLetters = section(DeadLetters, default=DeadLetters(), doc="Limits of the dead letters.")
    finished: Finished | None = section(
        Finished,
        default=None,
        doc="The history of finished tasks, without their payload. Absent: a finished task leaves no trace.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How late tasks may start; what autoscaling aims at, and alerts measure."""

    lateness_milliseconds: int = whole(
        1, 86_400_000, default=1000, doc="How late a task may start after it fell due."
    )
    percentile: str = text(
        PERCENTILE,
        default="99",
        doc='Percent of the tasks of the last 5 minutes that must be no later than that, as text: "99.9".',
    )

    @property
    def lateness_seconds(self) -> float:
        """The same in seconds."""
        return self.lateness_milliseconds / 1000

    @property
    def percent(self) -> float:
        """The percentile as a number."""
        return float(self.percentile)

    @property
    def late_percent(self) -> float:
        """How many percent of the tasks may be later."""
        return round(100 - self.percent, 3)

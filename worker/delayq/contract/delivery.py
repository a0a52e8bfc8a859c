"""spec.delivery: leases, attempts, time limits and the wait between attempts."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from delayq.contract.fields import choice, listing, section, whole
from delayq.contract.kinds import Whole
from delayq.contract.record import Shape, ordered

_YEAR: Final = 31_536_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Each wait is longer than the one before by a factor, up to a cap."""

    SHAPE: ClassVar[Shape] = Shape(rules=(ordered("initial_seconds", "max_seconds"),))

    initial_seconds: int = whole(1, _YEAR, default=10, doc="Wait after the first failure.")
    max_seconds: int = whole(1, _YEAR, default=3600, doc="Longest wait.")
    factor_percent: int = whole(
        100, 1000, default=200, doc="Each wait in percent of the one before; 200 doubles it."
    )
    jitter_percent: int = whole(
        0,
        100,
        default=20,
        doc="Random part of each wait, so that tasks that failed together do not retry together.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a failed task waits for its next attempt: exactly one of delaysSeconds, exponential."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("delays_seconds", "exponential"))

    delays_seconds: tuple[int, ...] | None = listing(
        Whole(0, _YEAR),
        least=1,
        most=100,
        default=None,
        doc="Wait after the first failure, the second, and so on; the last one repeats.",
    )
    exponential: Exponential | None = section(
        Exponential,
        default=None,
        doc="Waits that grow by a factor; an empty mapping takes all of its defaults.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How workers receive tasks, and when a task is delivered again."""

    lease_duration_seconds: int = whole(
        1,
        86_400,
        default=30,
        doc="How long a lease lasts without extension; workers extend it after a third of this time.",
    )
    max_attempts: int = whole(
        1, 10_000, default=5, doc="Attempts that may fail before the task becomes a dead letter."
    )
    max_crashes: int = whole(
        1,
        10_000,
        default=3,
        doc="Crashes of a worker that ran only this task, after which the task becomes a dead letter.",
    )
    handler_timeout_seconds: int = whole(
        1,
        604_800,
        default=300,
        doc="Longest run of the handler. A longer one is cancelled, and the attempt has failed.",
    )
    max_block_milliseconds: int = whole(
        100,
        60_000,
        default=2000,
        doc="Longest that an idle worker waits for a wake-up before it looks for due tasks itself.",
    )
    deadline_seconds: int | None = whole(
        1,
        10 * _YEAR,
        default=None,
        doc="How long after its due time a task may start, unless the task or its kind has another deadline. "
        "Clients store it with the task.",
    )
    on_expired: Literal["Bury", "Drop"] = choice(
        "Bury",
        "Drop",
        default="Bury",
        doc="What happens to a task that missed its deadline: it becomes a dead letter, or is deleted.",
    )
    backoff: Backoff = section(
        Backoff,
        default=Backoff(delays_seconds=(60, 300, 900)),
        doc="Wait between attempts.",
    )

    @property
    def deadline_ms(self) -> int | None:
        """The queue's deadline in ms."""
        return None if self.deadline_seconds is None else self.deadline_seconds * 1000

"""All exceptions of delayq. Expected results (a lost lease, an unknown task) are values, not exceptions.

DelayQError
├── Refused                    a call was rejected and stored nothing
│   ├── InvalidTask            the task itself is malformed
│   │   ├── InvalidDueTime
│   │   └── PayloadTooLarge
│   ├── TaskExists
│   ├── QueueFull
│   └── DelayTooLong
├── ScheduleRefused            a recurring schedule was not changed
│   └── NoSuchSchedule
├── TasksRefused               some tasks of schedule_many were rejected
├── NotConfirmed            stored, but replicas or the disk did not confirm it in time
├── InvalidDocument            the DelayQueue document cannot be used
├── SpecError                  fields of a document are not valid: a ValueError, too (delayq.contract.problems)
├── UnsupportedFormat          an older or a newer delayq wrote the keys of a shard; this one changes nothing there
├── Unavailable                Redis is unreachable or does not serve
└── EnvelopeError              a stored task cannot be read
    └── EnvelopeTooNew

For handlers to raise: Bury, Seen and

Retry
├── GuardBusy                  another run holds the task's guard
├── GuardLost                  the guard was lost while the handler ran
├── ArgumentsRefused           the arguments do not fit this worker's function, but may fit another worker's
├── NotStarted                 the process lacks a thread, a descriptor, … : the handler has not begun
└── GuardUnavailable           the guard's store is unreachable or does not serve
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from delayq.durations import Duration, milliseconds

Outage = Literal[
    "refused",
    "no_route",
    "timeout",
    "closed",
    "dns",
    "not_redis",
    "tls_absent",
    "tls_name",
    "tls_expired",
    "tls_untrusted",
    "tls_client",
    "tls",
    "auth",
    "denied",
    "protected_mode",
    "no_database",
    "max_clients",
    "rejected",
    "unsupported_format",
    "loading",
    "busy",
    "out_of_memory",
    "read_only",
    "cannot_persist",
    "no_replicas",
    "no_master",
    "cluster_down",
    "migrating",
    "other",
]
"""Why Redis does not serve, as in the metric delayq_redis_down; docs/reference/redis-errors.md explains each."""

MAX_RETRY_DELAY_MS = 10 * 365 * 86_400_000  # ten years, the upper bound of maxDelaySeconds


def _reduced(error: Exception) -> tuple[Any, ...]:
    """Have pickle and copy rebuild an error from its message and facts, without its constructor.

    BaseException.__reduce__ would call the constructor with the message, in place of its own parameters.
    """
    return Exception.__new__, (type(error), *error.args), error.__dict__


class DelayQError(Exception):
    """Base of every error that delayq raises on purpose."""

    outage: Outage = "rejected"
    """Why Redis does not serve, if Redis caused the error."""

    __reduce__ = _reduced


class Refused(DelayQError):
    """The queue rejected a call and stored nothing."""

    def __init__(self, task_id: str, message: str) -> None:
        """Store the id and the message."""
        super().__init__(message)
        self.task_id = task_id


class InvalidTask(Refused):
    """The task is malformed: its id, headers or payload cannot be stored."""


class InvalidDueTime(InvalidTask, ValueError):
    """A due time, a delay or another time is malformed, or is given in two ways at once."""


class PayloadTooLarge(InvalidTask):
    """The encoded payload or the headers are larger than the queue's limit."""

    def __init__(self, task_id: str, what: str, *, size: int, limit: int) -> None:
        """`size` and `limit` are bytes."""
        super().__init__(task_id, f"{what} of task {task_id} is {size:,} bytes, the limit is {limit:,}")
        self.size, self.limit = size, limit


class TaskExists(Refused):
    """A live task or dead letter already has this id."""

    def __init__(self, task_id: str) -> None:
        """Name the task, and the values of if_exists that allow it."""
        super().__init__(task_id, f'task {task_id} exists already (if_exists="keep" or "replace" allows it)')


class QueueFull(Refused):
    """The queue holds as many tasks as spec.limits.maxLength allows, or as many bytes as maxBytes does."""

    def __init__(
        self, task_id: str, limit: int, what: Literal["tasks", "bytes"] = "tasks", *, shards: int = 1
    ) -> None:
        """`limit` is the queue's limit of `what`; each shard has a quota of it, and the task's shard is full."""
        field, others = ("maxLength", "") if what == "tasks" else ("maxBytes", "purge dead letters, ")
        part = f", of which each of {shards} shards takes {-(-limit // shards):,}" if shards > 1 else ""
        super().__init__(
            task_id,
            f"the queue is full: task {task_id} does not fit into spec.limits.{field} = {limit:,} {what}{part}; "
            f"wait until tasks are done, {others}add workers, or raise it",
        )
        self.limit, self.what = limit, what


class DelayTooLong(Refused):
    """The due time is later than spec.limits.maxDelaySeconds allows."""

    def __init__(self, task_id: str, limit_ms: int) -> None:
        """`limit_ms` is relative to Redis' time."""
        super().__init__(
            task_id, f"task {task_id} is due later than maxDelaySeconds = {limit_ms // 1000:,} allows"
        )
        self.limit_ms = limit_ms


class ScheduleRefused(DelayQError):
    """A schedule was not changed: its task does not fit the limits, another owner has the name, or there is no room."""

    def __init__(
        self, message: str, reason: Literal["InvalidSpec", "NameConflict", "QueueFull"] = "InvalidSpec"
    ) -> None:
        """`reason` is the one of the conditions of a DelaySchedule."""
        super().__init__(message)
        self.reason = reason


class NoSuchSchedule(ScheduleRefused):
    """The queue has no schedule of this name."""

    def __init__(self, name: str) -> None:
        """Name it."""
        super().__init__(f"there is no schedule {name} in this queue: `delayq cron list` shows all")


class TasksRefused(DelayQError):
    """Some of the tasks given to schedule_many were refused; all the others are stored."""

    def __init__(self, refused: Mapping[int, Refused], scheduled: Sequence[Any]) -> None:
        """`refused` maps a task's position to its error; `scheduled` are those stored, a Scheduled each, in order."""
        first = next(iter(refused.values()))
        super().__init__(f"{len(refused):,} refused, {len(scheduled):,} scheduled; the first: {first}")
        self.refused = dict(refused)
        """The position of each refused task → its error."""
        self.scheduled = list(scheduled)
        """The stored tasks, a Scheduled each, in the order given."""


class NotConfirmed(DelayQError):
    """Tasks are stored on the primary, but the confirmation that spec.durability requires timed out."""

    def __init__(
        self,
        message: str,
        *,
        scheduled: Sequence[Any],
        unconfirmed: Sequence[Any],
        refused: Mapping[int, Refused],
        confirmed: int,
        wanted: int,
    ) -> None:
        """`scheduled` are all stored tasks, `unconfirmed` a part of them; `confirmed` of `wanted` arrived."""
        super().__init__(message)
        self.scheduled = list(scheduled)
        """All stored tasks, a Scheduled each, in the order given."""
        self.unconfirmed = list(unconfirmed)
        """Those of them that were not confirmed in time."""
        self.refused = dict(refused)
        """The position of each refused task → its error."""
        self.confirmed = confirmed
        """How many confirmations arrived."""
        self.wanted = wanted
        """How many were needed."""


class InvalidDocument(DelayQError):
    """The DelayQueue document, or something that it names, cannot be used."""


class UnsupportedFormat(DelayQError):
    """An older or a newer delayq wrote a shard, in a format that this one does not support; nothing was changed."""

    outage = "unsupported_format"

    def __init__(self, queue: str, shard: int, *, found: int, known: int) -> None:
        """`found` is the shard's format, `known` the only one that this delayq supports."""
        self.queue, self.shard, self.found, self.known = queue, shard, found, known
        self.what = f"queue {queue}, shard {shard}: expected format {known}, got {found}"
        self.cure = (
            "An older delayq wrote it: run its tasks with that version, then remove the rest with `delayq erase`; "
            "or use another queueName or spec.redis.keyPrefix"
            if found < known
            else "A newer delayq wrote it: update this process to that version"
        )
        super().__init__(f"{self.what}; nothing was changed. {self.cure}")


class Unavailable(DelayQError):
    """Redis is unreachable, or replies that it does not serve."""

    def __init__(self, where: str, why: str, *, answered: bool = False, outage: Outage = "other") -> None:
        """`where` is host:port, without a password; `answered`: `why` is an error reply of Redis, such as LOADING."""
        what = f"Redis at {where} does not serve" if answered else f"cannot reach Redis at {where}"
        super().__init__(f"{what} ({why})")
        self.where, self.why, self.answered, self.outage = where, why, answered, outage


class EnvelopeError(DelayQError):
    """The stored bytes of a task are not an envelope."""


class EnvelopeTooNew(EnvelopeError):
    """The task was written by a newer delayq; this one cannot run it."""


class Retry(Exception):
    """Raise in a handler to run the task again, after `delay` ("30m" or a timedelta) or the queue's own backoff."""

    __reduce__ = _reduced

    def __init__(
        self,
        reason: str = "",
        *,
        delay: Duration | None = None,
        delay_ms: int | None = None,
        charge: bool = True,
    ) -> None:
        """With charge=False the run is not counted against maxAttempts. `delay_ms` is the delay in milliseconds.

        Raises ValueError for a delay that is malformed, negative or above ten years, else TypeError: see check_retry.
        """
        if delay is not None:
            if delay_ms is not None:
                raise ValueError("Retry: expected at most one of delay and delay_ms, got both")
            try:
                delay_ms = milliseconds(delay)
            except ValueError as error:
                raise ValueError(f"Retry(delay=…): {error}") from None
        check_retry(delay_ms, charge=charge)
        super().__init__(reason or "the handler asked for a retry")
        self.delay_ms, self.charge = delay_ms, charge


def check_retry(delay_ms: object, *, charge: object) -> None:
    """TypeError when delay_ms is not whole or charge not a bool, ValueError when delay_ms is out of range."""
    if delay_ms is not None:
        expected = (
            f"Retry(delay_ms=…): expected a whole number of milliseconds from 0 to {MAX_RETRY_DELAY_MS}"
        )
        if type(delay_ms) is not int:
            raise TypeError(f"{expected}, got {delay_ms!r:.60}")
        if not 0 <= delay_ms <= MAX_RETRY_DELAY_MS:
            raise ValueError(
                f"{expected}, got {delay_ms if abs(delay_ms) < 10**20 else 'a number far beyond'}"
            )
    if type(charge) is not bool:
        raise TypeError(f"Retry(charge=…): expected True or False, got {charge!r:.60}")


class Bury(Exception):
    """Raise in a handler when the task can never succeed: it becomes a dead letter at once."""


class Seen(Exception):
    """The task has taken effect already: it is done, and the handler must not run again."""

    def __init__(self, reason: str = "the task has taken effect already") -> None:
        """Guards raise it before a run; a handler may raise it, too."""
        super().__init__(reason)


class GuardBusy(Retry):
    """Another run holds the task's guard; the task runs again later, and no attempt is charged."""

    def __init__(self, reason: str, *, delay_ms: int = 1000) -> None:
        """`delay_ms` estimates how long the other run holds the guard."""
        super().__init__(reason, delay_ms=delay_ms, charge=False)


class GuardLost(Retry):
    """The guard was lost while the handler ran; the task runs again, and an attempt is charged."""

    def __init__(self, reason: str, *, delay_ms: int | None = None) -> None:
        """An attempt is charged, because the handler may have taken effect: retries must end."""
        super().__init__(reason, delay_ms=delay_ms)


class GuardUnavailable(Retry):
    """The guard's store is unreachable or does not serve; the task runs again later, and no attempt is charged."""

    def __init__(self, where: str, why: str, *, delay_ms: int = 2000) -> None:
        """`where` and `why` never hold a password: they are logged, and exported as a condition."""
        super().__init__(f"guard at {where} is not available ({why})", delay_ms=delay_ms, charge=False)
        self.where, self.why = where, why


class ArgumentsRefused(Retry):
    """The arguments do not fit this worker's function; the task waits for another worker, and no attempt is charged."""

    def __init__(self, reason: str) -> None:
        """The worker decides how long the task waits, and when it has waited enough."""
        super().__init__(reason, charge=False)


class NotStarted(Retry):
    """The handler has not started: this process lacks a thread, a process, a descriptor or memory for it."""

    def __init__(self, reason: str) -> None:
        """The task is released, and no attempt is charged."""
        super().__init__(reason, charge=False)

"""What a kind of task decides itself: attempts, retry delays, timeout, deadline, batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.durations import milliseconds
from delayq.protocol.envelope import MAX_DEADLINE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.durations import Duration

# The bounds of spec.delivery, which a policy replaces.
MAX_ATTEMPTS: Final = 10_000
MAX_TIMEOUT_SECONDS: Final = 604_800
MAX_DELAYS: Final = 100
MAX_DELAY_SECONDS: Final = 31_536_000
MIN_BATCH: Final = 2
MAX_BATCH: Final = 10_000
"""The greatest worker.concurrency: each task of a batch holds a slot."""
MAX_BATCH_WAIT_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a kind decides itself, in the units of spec.delivery; None: as in the document."""

    max_attempts: int | None = None
    timeout_seconds: int | None = None
    delays_seconds: tuple[int, ...] | None = None
    batch: int | None = None
    """The greatest number of tasks in one call; None: the function takes one task."""
    batch_wait_ms: int = 0
    """For how long a call waits until it is full."""
    deadline_ms: int | None = None  # clients put it into the tasks
    guard: bool = False
    """Whether the kind asks for the document's guard; those that the document names have it anyway."""


def policy_of(
    max_attempts: int | None,
    timeout: Duration | None,
    retry_delays: Iterable[Duration] | None,
    *,
    deadline: Duration | None,
    batch: int | None,
    batch_wait: Duration | None,
    guard: bool,
) -> Policy:
    """Return the policy of these options of App.task; ValueError names the option, what was expected and what came."""
    if max_attempts is not None and (type(max_attempts) is not int or not 1 <= max_attempts <= MAX_ATTEMPTS):
        raise ValueError(
            f"max_attempts: expected a whole number, 1 to {MAX_ATTEMPTS}, got {max_attempts!r:.60}"
        )
    delays = None
    if isinstance(retry_delays, str):
        raise ValueError(f"retry_delays: expected a list of durations, got {retry_delays!r:.60}")  # noqa: TRY004 -- as for other durations
    if retry_delays is not None:
        delays = tuple(_seconds(each, "retry_delays", MAX_DELAY_SECONDS) for each in retry_delays)
        if not 1 <= len(delays) <= MAX_DELAYS:
            raise ValueError(f"retry_delays: expected 1 to {MAX_DELAYS}, got {len(delays)}")
    seconds = None if timeout is None else max(1, _seconds(timeout, "timeout", MAX_TIMEOUT_SECONDS))
    if batch is not None and (type(batch) is not int or not MIN_BATCH <= batch <= MAX_BATCH):
        raise ValueError(f"batch: expected a whole number, {MIN_BATCH} to {MAX_BATCH}, got {batch!r:.60}")
    if batch_wait is not None and batch is None:
        raise ValueError("batch_wait: it needs batch")
    if type(guard) is not bool:
        raise ValueError(f"guard: expected True or False, got {guard!r:.60}")
    wait_ms = 0 if batch_wait is None else _bounded_ms(batch_wait, "batch_wait", MAX_BATCH_WAIT_MS)
    return Policy(
        max_attempts=max_attempts,
        timeout_seconds=seconds,
        delays_seconds=delays,
        deadline_ms=None if deadline is None else _deadline_ms(deadline),
        batch=batch,
        batch_wait_ms=wait_ms,
        guard=guard,
    )


def _deadline_ms(value: Duration) -> int:
    found = _ms(value, "deadline")
    if not 1 <= found <= MAX_DEADLINE_MS:
        raise ValueError(f"deadline: expected more than 0 and at most ten years, got {value!r:.60}")
    return found


def _seconds(value: Duration, name: str, most: int) -> int:
    return -(-_bounded_ms(value, name, most * 1000) // 1000)


def _bounded_ms(value: Duration, name: str, most: int) -> int:
    found = _ms(value, name)
    if found > most:
        raise ValueError(f"{name}: expected at most {most // 1000} s, got {value!r:.60}")
    return found


def _ms(value: Duration, name: str) -> int:
    try:
        return milliseconds(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None

"""The interface of guards: begin → run → finish or abandon, and seen.

`async with guard(task) as hold:` runs these steps around a handler, and the worker adds no others. A block that returns
finishes, and one that raises abandons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from delayq.errors import GuardLost
from delayq.protocol.envelope import Task


@dataclass(eq=False)
class Hold:
    """A guard's grant for one run of a task. Guards add the fields that they need to finish."""

    task: Task
    connection: Any = None
    """The connection with a SQL guard's open transaction: the handler's writes in it take effect exactly once."""
    running: asyncio.Task[Any] | None = field(default=None, init=False)
    """What to cancel when the hold is lost; None in a thread."""
    interrupted: bool = field(default=False, init=False)
    """Whether the run was cancelled before the handler returned, so its progress is unknown."""
    lost: str = field(default="", init=False)
    """Why the hold was lost; empty while it is valid."""

    def lose(self, why: str) -> None:
        """Mark the hold as lost, and cancel the run: another worker may now run the task, too."""
        if not self.lost:
            self.lost = why
            if self.running is not None:
                self.running.cancel()


H = TypeVar("H", bound=Hold)


class Guard(Protocol[H]):
    """Keeps a task from taking effect twice, as far as it can; docs/explanation/guarantees.md says how far."""

    name: str
    """Name in metrics and logs: redis-lock."""
    takes_batches: bool = False
    """Whether it can guard several tasks in one transaction."""

    async def begin(self, task: Task) -> H:
        """Grant a run. Raises Seen, GuardBusy, GuardUnavailable; Bury if the task must not run again."""

    async def finish(self, hold: H) -> None:
        """Record the finished run. Raises Seen, GuardBusy, GuardLost or GuardUnavailable if that fails."""

    async def abandon(self, hold: H) -> None:
        """Undo the hold of a failed run; if that fails, a time limit ends the hold. Raises nothing."""

    async def seen(self, task: Task) -> bool | None:
        """Return whether the task has taken effect; None if unknown. Raises GuardUnavailable."""

    def for_effects_elsewhere(self) -> Self:
        """Return the same guard for handlers that do not write in its transaction."""
        return self

    async def incomplete_run(self, task: Task) -> str:
        """Describe a run of the task that has begun and not recorded its end; empty for none, or without records."""
        del task
        return ""

    async def check(self) -> None:
        """Check that the guard can serve; GuardUnavailable if not."""

    async def close(self) -> None:
        """Close connections. Time limits end the holds that are still open."""

    def __call__(self, task: Task) -> Guarded[H]:
        """Return the context manager around one run of a task."""
        return Guarded(self, task)


def note_ending(error: asyncio.CancelledError, ended: asyncio.Future[Any]) -> None:
    """Say of a cancelled run that what may still take effect has not ended: a commit, or a thread.

    `ended` has a result once the guard has recorded the run; it is cancelled, or fails, if that cannot be. A class of
    its own would not do: asyncio.timeout() of Python 3.11 converts only the very CancelledError.
    """
    error.__dict__["ended"] = ended


def ending_of(error: BaseException) -> asyncio.Future[Any] | None:
    """Return what note_ending() said."""
    return error.__dict__.get("ended") if isinstance(error, asyncio.CancelledError) else None


class Guarded(Generic[H]):
    """One run of a task under a guard, on the event loop."""

    def __init__(self, guard: Guard[H], task: Task) -> None:
        """The hold begins when the block is entered."""
        self._guard, self._task = guard, task
        self._hold: H | None = None
        self._cancelling = 0

    async def _begin(self) -> H:
        return await self._guard.begin(self._task)

    async def __aenter__(self) -> H:
        running = asyncio.current_task()
        self._cancelling = running.cancelling() if running else 0
        self._hold = hold = await self._begin()
        if hold.lost:  # lost before begin() returned: there was no run to cancel
            await self._guard.abandon(hold)
            raise GuardLost(hold.lost)
        hold.running = running
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            return
        running, hold.running = hold.running, None  # from here on, a loss interrupts nothing
        hold.interrupted = running is not None and running.cancelling() > self._cancelling
        if kind is None and not hold.interrupted:
            await _to_its_end(self._guard.finish(hold))
            return
        await self._guard.abandon(hold)
        # Undo our own cancellation, as asyncio.timeout does. A cancellation by other code stays in effect.
        if hold.lost and (running is None or running.uncancel() <= self._cancelling):
            raise GuardLost(hold.lost) from error
        if kind is None:  # the block suppressed its cancellation, so its work may be incomplete
            raise asyncio.CancelledError


_finishing: set[asyncio.Task[None]] = set()


async def _to_its_end(finish: Coroutine[Any, Any, None]) -> None:
    """Finish even if the caller is cancelled: the handler has succeeded, and the guard must store that.

    The caller's CancelledError then has its end.
    """
    finishing = asyncio.create_task(finish)
    _finishing.add(finishing)  # the event loop has only weak references to tasks
    finishing.add_done_callback(_finished)
    try:
        await asyncio.shield(finishing)
    except asyncio.CancelledError as error:
        note_ending(error, finishing)
        raise


def _finished(finishing: asyncio.Task[None]) -> None:
    _finishing.discard(finishing)
    if not finishing.cancelled():
        finishing.exception()  # asyncio must not log it: the caller raises it, or the next run reads the guard's record

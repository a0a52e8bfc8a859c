"""The interface of guards: begin → run → finish or abandon, and seen.

`async with guard(task) as hold:` goes through these steps, and the worker does nothing else around a handler: a block
that ends well finishes, one that raises abandons.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from delayq.errors import GuardLost

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from delayq.protocol.envelope import Task


@dataclass(eq=False)
class Hold:
    """A guard's grant for one run of a task. Guards add the fields that they need to finish."""

    task: Task
    connection: Any = None
    """The open transaction of a SQL guard, for what the handler writes to take effect exactly once."""
    running: asyncio.Task[Any] | None = field(default=None, init=False)
    """What to cancel when the hold is lost; None in a thread."""
    interrupted: bool = field(default=False, init=False)
    """Whether the run ended without the handler's end, so its progress is unknown."""
    lost: str = field(default="", init=False)
    """Why the hold was lost; empty while it is not."""

    def lose(self, why: str) -> None:
        """Report that another worker may run the task now, too."""
        if not self.lost:
            self.lost = why
            if self.running is not None:
                self.running.cancel()


H = TypeVar("H", bound=Hold)


class Guard(Protocol[H]):
    """Keeps a task from taking effect twice, as far as it can; docs/explanation/guarantees.md says how far."""

    name: str
    """As metrics and logs say it: redis-lock."""

    async def begin(self, task: Task) -> H:
        """Grant a run. Raises Seen, GuardBusy, GuardUnavailable; Bury if the task must not run again."""

    async def finish(self, hold: H) -> None:
        """Record the finished run. Raises Seen, GuardBusy, GuardLost or GuardUnavailable if that fails."""

    async def abandon(self, hold: H) -> None:
        """Undo the hold of a failed run; if that fails, a time limit ends the hold. Raises nothing."""

    async def seen(self, task: Task) -> bool | None:
        """Return whether the task has taken effect; None if unknown. Raises GuardUnavailable."""

    async def check(self) -> None:
        """Check that the guard can serve; GuardUnavailable if not."""

    async def close(self) -> None:
        """Close connections. Time limits end the holds that are still open."""

    def __call__(self, task: Task) -> Guarded[H]:
        """Return the context manager around one run of a task."""
        return Guarded(self, task)


class Guarded(Generic[H]):
    """One run of a task under a guard, on the event loop."""

    def __init__(self, guard: Guard[H], task: Task) -> None:
        """The hold begins when the block is entered."""
        self._guard, self._task = guard, task
        self._hold: H | None = None
        self._cancelling = 0

    async def __aenter__(self) -> H:
        running = asyncio.current_task()
        self._cancelling = running.cancelling() if running else 0
        self._hold = hold = await self._guard.begin(self._task)
        if hold.lost:  # while begin had not returned yet, there was nothing to cancel
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
        # Our own cancellation is taken back, as asyncio.timeout does; a cancellation by others stays.
        if hold.lost and (running is None or running.uncancel() <= self._cancelling):
            raise GuardLost(hold.lost) from error
        if kind is None:  # the block swallowed its cancellation, and may not have done what it was to do
            raise asyncio.CancelledError


_finishing: set[asyncio.Task[None]] = set()


async def _to_its_end(finish: Coroutine[Any, Any, None]) -> None:
    """Finish even if the caller is cancelled: the handler has succeeded, and the guard must store that."""
    finishing = asyncio.create_task(finish)
    _finishing.add(finishing)  # the event loop itself holds tasks weakly
    finishing.add_done_callback(_finished)
    await asyncio.shield(finishing)


def _finished(finishing: asyncio.Task[None]) -> None:
    _finishing.discard(finishing)
    if not finishing.cancelled():
        finishing.exception()  # the caller has it; without a caller, the next run reads the guard

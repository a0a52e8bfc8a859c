"""The check that asks the queue's own SQL guard: what is in its ledger has taken effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from delayq.protocol.results import Verdict
from delayq.recovery.checks.base import Answer

if TYPE_CHECKING:
    from delayq.guards import Guard
    from delayq.protocol.envelope import Task

ANSWERS: Final = {
    True: Answer(Verdict.COMPLETE, "the guard has seen it take effect"),
    False: Answer(Verdict.REQUEUE, "the guard has not seen it take effect"),
    None: Answer(Verdict.WAIT, "the guard cannot tell"),
}


@runtime_checkable
class Remembers(Protocol):
    """A guard that knows of runs that never ended; sql-unique does."""

    async def incomplete_run(self, task: Task) -> str:
        """Say which, empty for none."""


class LedgerCheck:
    """Whether the guard has seen the task take effect."""

    stuck = 0  # threads that hang in a driver are the pool's: it says GuardBusy

    def __init__(self, guard: Guard[Any]) -> None:
        """The guard is ours to close."""
        self._guard = guard

    async def start(self) -> None:
        """Nothing to open: a database that is down now may be up when it is asked."""

    async def ask(self, task: Task) -> Answer:
        """Ask the guard; GuardUnavailable is no verdict, GuardBusy is one later."""
        seen = await self._guard.seen(task)
        if seen is False and isinstance(self._guard, Remembers):
            begun = await self._guard.incomplete_run(task)
            if begun:  # the guard itself decides, when the task runs again
                return Answer(Verdict.REQUEUE, f"an incomplete run {begun}")
        return ANSWERS[seen]

    async def close(self) -> None:
        """Let go of connections."""
        await self._guard.close()

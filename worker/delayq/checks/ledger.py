"""The check that asks the queue's own SQL guard: what is in its ledger has taken effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delayq.checks.base import Answer
from delayq.values import Verdict

if TYPE_CHECKING:
    from delayq.guards import Guard
    from delayq.message import Task

ANSWERS: Final = {
    True: Answer(Verdict.COMPLETE, "the guard has seen it take effect"),
    False: Answer(Verdict.REQUEUE, "the guard has not seen it take effect"),
    None: Answer(Verdict.WAIT, "the guard cannot tell"),
}


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
        return ANSWERS[await self._guard.seen(task)]

    async def close(self) -> None:
        """Let go of connections."""
        await self._guard.close()

"""The check that uses the queue's own SQL guard: a task in its ledger has taken effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delayq.protocol.results import Verdict
from delayq.recovery.checks.base import Answer

if TYPE_CHECKING:
    from delayq.contract.files import Reference
    from delayq.guards import Guard
    from delayq.protocol.envelope import Task

ANSWERS: Final = {
    True: Answer(Verdict.COMPLETE, "the guard has seen it take effect"),
    False: Answer(Verdict.REQUEUE, "the guard has not seen it take effect"),
    None: Answer(Verdict.WAIT, "the guard cannot tell"),
}


class LedgerCheck:
    """Looks up the task in the guard's ledger."""

    stuck = 0  # the pool counts threads that hang in a driver, and raises GuardBusy

    def __init__(self, guard: Guard[Any]) -> None:
        """The check closes the guard."""
        self._guard = guard

    def lacks(self) -> dict[Reference, str]:
        """Need no file of an HTTP service."""
        return {}

    async def start(self) -> None:
        """Open nothing: a database that is down now may be up at the first check."""

    async def ask(self, task: Task) -> Answer:
        """Look up the task; GuardUnavailable: no verdict, GuardBusy: try again soon."""
        seen = await self._guard.seen(task)
        if seen is False and (begun := await self._guard.incomplete_run(task)):
            return Answer(
                Verdict.REQUEUE, f"an incomplete run {begun}"
            )  # the guard decides when the task runs again
        return ANSWERS[seen]

    async def close(self) -> None:
        """Close the connections."""
        await self._guard.close()

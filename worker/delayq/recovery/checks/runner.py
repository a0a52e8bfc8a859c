"""Run a check within its timeout, with a fallback if it gives no verdict. A check's exceptions are never raised."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal, NamedTuple

from delayq.errors import GuardBusy, NotStarted
from delayq.handlers.failures import bounded, described
from delayq.protocol.results import Verdict
from delayq.recovery.checks.base import Answer, CheckFailed
from delayq.service import logs

if TYPE_CHECKING:
    from delayq.contract import Check as Spec
    from delayq.protocol.envelope import Task
    from delayq.recovery.checks.base import Check

log = logging.getLogger(__name__)

Cause = Literal["check", "failed", "timeout", "unreadable"]

NO_REASON = "the check said so"


class Judgement(NamedTuple):
    """A verdict, its reason, and its cause: the check, or the document's onFailure because the check failed."""

    verdict: Verdict
    reason: str
    cause: Cause

    @property
    def failed(self) -> bool:
        """Whether the check gave no verdict."""
        return self.cause in {"failed", "timeout"}


class CheckRunner:
    """Runs checks."""

    def __init__(self, check: Check, spec: Spec) -> None:
        """`spec` has the timeout and the verdict of a failure."""
        self._check, self._timeout_seconds = check, spec.timeout_seconds
        self._on_failure = Verdict(spec.on_failure.lower())
        self._abandoned: set[asyncio.Task[Answer | BaseException]] = set()

    @property
    def abandoned(self) -> int:
        """The number of checks that still run after their timeout, on the event loop or in threads."""
        return len(self._abandoned) + self._check.stuck

    @property
    def hangs(self) -> bool:
        """Whether checks on the event loop ignore their cancellation: closing the loop would wait for them."""
        return bool(self._abandoned)

    async def judge(self, task: Task) -> Judgement | None:
        """Check one task; None: try again soon. Returns within the timeout, or when cancelled."""
        running = asyncio.create_task(self._ask(task))
        try:
            # Not wait_for(), which waits for a task that ignores its cancellation.
            await asyncio.wait({running}, timeout=self._timeout_seconds)
        finally:
            if not running.done():
                running.cancel()
                self._abandoned.add(running)
                running.add_done_callback(self._abandoned.discard)
        if not running.done():
            return self._failure("timeout", f"no verdict within {self._timeout_seconds} s")
        answer = running.result()
        if isinstance(answer, GuardBusy):
            return None
        if isinstance(answer, BaseException) and (lack := _lack(answer)):
            fields = logs.of_task(task) | {"error": str(lack)}
            log.warning("check_not_started", extra={"fields": fields})
            return None
        if isinstance(answer, Answer):
            reason = bounded(answer.reason) or (NO_REASON if answer.verdict is Verdict.BURY else "")
            return Judgement(answer.verdict, reason, "check")
        return self._failure("failed", _why(answer))

    async def _ask(self, task: Task) -> Answer | BaseException:
        """Return every exception as a value: a SystemExit that leaves an asyncio task would end the process."""
        try:
            return await self._check.ask(task)
        except BaseException as error:  # noqa: BLE001 -- a value for the caller, never swallowed
            return error

    def _failure(self, cause: Cause, why: str) -> Judgement:
        return Judgement(self._on_failure, bounded(f"the check failed: {why}"), cause)


def _lack(error: BaseException) -> NotStarted | None:
    """Return why the check has not begun; None if it has."""
    return next((each for each in (error, error.__cause__) if isinstance(each, NotStarted)), None)


def _why(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, CheckFailed) else described(error)
    except BaseException:  # noqa: BLE001 -- str() of a user's exception is users' code
        return "it raised an exception that cannot be read"

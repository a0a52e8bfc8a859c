"""Asking a check within its time limit, and what to do when it gives no verdict. Never raises what a check raised."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from delayq.errors import GuardBusy
from delayq.handlers.failures import bounded, described
from delayq.protocol.results import Verdict
from delayq.recovery.checks.base import Answer, CheckFailed

if TYPE_CHECKING:
    from delayq.contract import Check as Spec
    from delayq.protocol.envelope import Task
    from delayq.recovery.checks.base import Check

Cause = Literal["check", "failed", "timeout", "unreadable"]

NO_WORDS = "the check said so"


class Judgement(NamedTuple):
    """What is to become of a task, why, and who says so: the check, or the document because the check failed."""

    verdict: Verdict
    reason: str
    cause: Cause

    @property
    def failed(self) -> bool:
        """Whether the check gave no verdict."""
        return self.cause in {"failed", "timeout"}


class Asking:
    """The questions under way."""

    def __init__(self, check: Check, spec: Spec) -> None:
        """`spec` says how long to wait, and what to do in vain."""
        self._check, self._timeout_seconds = check, spec.timeout_seconds
        self._on_failure = Verdict(spec.on_failure.lower())
        self._given_up: set[asyncio.Task[Answer | BaseException]] = set()

    @property
    def given_up(self) -> int:
        """How many checks still run after their timeout, on the event loop or in threads."""
        return len(self._given_up) + self._check.stuck

    @property
    def hangs(self) -> bool:
        """Whether there are some on the event loop, which it would wait for without end."""
        return bool(self._given_up)

    async def judge(self, task: Task) -> Judgement | None:
        """Ask about one task; None: ask again in a moment. Returns within the time limit, or when cancelled."""
        asked = asyncio.create_task(self._ask(task))
        try:
            # Not wait_for(), which waits for whatever ignores its cancellation.
            await asyncio.wait({asked}, timeout=self._timeout_seconds)
        finally:
            if not asked.done():
                asked.cancel()
                self._given_up.add(asked)
                asked.add_done_callback(self._given_up.discard)
        if not asked.done():
            return self._failure("timeout", f"no verdict within {self._timeout_seconds} s")
        answer = asked.result()
        if isinstance(answer, GuardBusy):
            return None
        if isinstance(answer, Answer):
            reason = bounded(answer.reason) or (NO_WORDS if answer.verdict is Verdict.BURY else "")
            return Judgement(answer.verdict, reason, "check")
        return self._failure("failed", _why(answer))

    async def _ask(self, task: Task) -> Answer | BaseException:
        """Let nothing out: what leaves an asyncio task as SystemExit would end the process."""
        try:
            return await self._check.ask(task)
        except BaseException as error:  # noqa: BLE001 -- a value for the caller, never swallowed
            return error

    def _failure(self, cause: Cause, why: str) -> Judgement:
        return Judgement(self._on_failure, bounded(f"the check failed: {why}"), cause)


def _why(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, CheckFailed) else described(error)
    except BaseException:  # noqa: BLE001 -- a user's exception, whose parts are a user's code, too
        return "it raised an exception that cannot be read"

"""Run one task: call its handler, and convert the result into a settlement."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from delayq.errors import (
    ArgumentsRefused,
    Bury,
    GuardBusy,
    GuardLost,
    GuardUnavailable,
    NotStarted,
    Retry,
    Seen,
    check_retry,
)
from delayq.handlers.base import NO_BATCHES
from delayq.handlers.failures import bounded, described, message_of, traceback_of, with_frames
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.guarded import run_to_its_end
from delayq.service import logs
from delayq.worker import backoff
from delayq.worker.batches import size_of
from delayq.worker.settlements import REFUSED_MS, Settlement, of_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from delayq.contract import Delivery
    from delayq.handlers.base import Batch, Kinds
    from delayq.protocol.envelope import Task
    from delayq.protocol.results import Lease
    from delayq.service.counters import WorkerCounters
    from delayq.worker.batches import Call
    from delayq.worker.slots import Running

    HandlerCall = Callable[[Task], Awaitable[object]]

log = logging.getLogger(__name__)

# Raised by a guard, or before the handler: no failure, and no sample of the handler's duration.
_REFUSED = (Seen, ArgumentsRefused, GuardBusy, GuardUnavailable, NotStarted)
_EVENTS: dict[type[Retry], str] = {
    Retry: "handler_failed",
    ArgumentsRefused: "arguments_refused",
    GuardBusy: "guard_busy",
    GuardLost: "guard_lost",
    GuardUnavailable: "guard_unavailable",
}
NEVER_LAST = 2**31  # attempts
UNREADABLE = "the handler raised an exception that cannot be read (a Retry without super().__init__()?)"


class Executor:
    """Calls the handler and counts the results."""

    def __init__(
        self,
        call: HandlerCall,
        delivery: Delivery,
        counters: WorkerCounters,
        kinds: Kinds | None = None,
        *,
        batches: Mapping[tuple[str, int], Batch] = NO_BATCHES,
        lacking: Callable[[Running, NotStarted], None] = lambda *_: None,
    ) -> None:
        """`call`, `kinds` and `batches` are the handler's. `lacking` is called for each run that cannot begin."""
        self._lacking = lacking
        self.batches = batches
        self._call, self._delivery, self._counters, self.kinds = call, delivery, counters, kinds
        self.uniform = kinds is None or (not batches and all(each is delivery for each in kinds.values()))
        """Whether all tasks are delivered as the document says, and so end in the order of their start."""
        self._lease_seconds = delivery.lease_duration_seconds

    def can_run(self, task: Task) -> bool:
        """Whether the handler can run tasks of this kind and version."""
        kinds = self.kinds
        return kinds is None or (task.kind, task.kind_version) in kinds or (task.kind, None) in kinds

    def policy(self, task: Task) -> Delivery:
        """Return how a task is delivered: as its kind says, or as the document does."""
        if self.uniform or self.kinds is None:
            return self._delivery
        return self.kinds.get((task.kind, task.kind_version), self._delivery)

    async def run(self, running: Running) -> Settlement | None:
        """Run one task to its end. None when there is nothing to settle, because the lease is lost."""
        running.begun_at = started = time.monotonic()
        if started - running.extended_at > self._lease_seconds:
            return None  # this process was suspended since the claim: the lease has expired
        if running.handed_back:
            return _handed_back(running)
        if running.cancelled_for is not None:
            return self.settlement(running, asyncio.CancelledError())
        self._counters.claimed_to_started.observe(started - running.extended_at)
        try:
            result = await self._call(running.lease.task)
            end_if_forked()
            if result is not None and inspect.isawaitable(result):  # of `async def` without `await`
                run_to_its_end(await result)
                end_if_forked()
        except BaseException as error:  # noqa: BLE001 -- every exception of a handler is a failure of its task
            end_if_forked()
            settlement = self.settlement(running, error)
            if isinstance(error, _REFUSED):
                return settlement
        else:
            settlement = self.settlement(running, None)
        seconds = time.monotonic() - started
        self._counters.handler.observe(seconds)
        if kind := running.lease.task.kind:
            self._count(kind, seconds, 1)
        return settlement

    def _count(self, kind: str, seconds: float, runs: int) -> None:
        of_kind = self._counters.kinds[kind]
        of_kind.runs += runs
        of_kind.seconds += seconds * runs

    def size(self, lease: Lease, batch: Batch) -> int:
        """Return how many tasks a call with this task of a batch takes."""
        if not lease.failures:
            return batch.limit
        return size_of(batch.limit, lease.failures, self.policy(lease.task).max_attempts)

    async def run_batch(self, call: Call) -> Sequence[tuple[Running, Settlement | None]]:
        """Run the tasks of a call to its end; return each with its settlement, None when its lease is lost."""
        call.begun_at = started = time.monotonic()
        members, earliest = call.members, started - self._lease_seconds
        held = [
            each
            for each in members
            if each.extended_at >= earliest and each.cancelled_for is None and not each.handed_back
        ]
        call.members = held
        left = [each for each in members if each not in held] if len(held) < len(members) else []
        lost = [(each, _handed_back(each) if each.handed_back else None) for each in left]
        if not held:
            return lost
        deadline = started + self.policy(held[0].lease.task).handler_timeout_seconds
        for each in held:
            each.deadline = deadline
        for claimed_at, tasks in Counter([each.extended_at for each in held]).items():
            self._counters.claimed_to_started.observe_equal(started - claimed_at, tasks)
        error: BaseException | None = None
        outcomes: Sequence[BaseException | None] = ()
        try:
            outcomes = await call.batch.call([each.lease.task for each in held])
            end_if_forked()
        except BaseException as raised:  # noqa: BLE001 -- as in run
            end_if_forked()
            error = raised
            settled = [(each, self.settlement(each, error)) for each in held]
        else:
            settled = [
                (each, self._judged(each, outcome)) for each, outcome in zip(held, outcomes, strict=True)
            ]
        ran = 0 if isinstance(error, _REFUSED) else len(held)
        ran -= sum(isinstance(each, _REFUSED) for each in outcomes if each is not None)
        seconds = time.monotonic() - started
        self._counters.handler.observe_equal(seconds, ran)
        if kind := held[0].lease.task.kind:
            self._count(kind, seconds, ran)
        return [*settled, *lost]

    def _judged(self, member: Running, outcome: BaseException | None) -> Settlement | None:
        """Return the settlement of a task whose outcome the handler has returned."""
        if outcome is None and member.cancelled_for is None:
            return Settlement("ack", member.lease)
        member.judged = member.cancelled_for is None
        return self.settlement(member, outcome)

    def settlement(self, running: Running, error: BaseException | None) -> Settlement | None:
        """Return the settlement of a task that ended; `error` is None when the handler returned.

        Exceptions are users' code, too: attributes may be missing, and str() of them may raise or exit.
        """
        if error is None and running.cancelled_for is None:
            return Settlement("ack", running.lease)
        try:
            return self._settlement(running, error)
        except BaseException:  # noqa: BLE001 -- the exception cannot be read, so its text is not used
            if running.cancelled_for == "drain":
                return _released(running)
            return self._retried(running, None, UNREADABLE)

    def _settlement(self, running: Running, error: BaseException | None) -> Settlement | None:
        """The cancellation reason decides first: a cancelled handler may raise in cleanup, or return normally."""
        reason = running.cancelled_for
        if reason is None and error is not None:
            return self._failed(running, error)
        if reason in ("lease_lost", "given_up"):
            return None
        if isinstance(error, Seen) and not running.shared:
            return self._seen(running, error)
        if reason == "drain":  # any other error may come from our cancellation: charge no attempt
            if not isinstance(error, (Bury, Retry)) or (running.shared and isinstance(error, Bury)):
                return _released(running)
            return self._failed(running, error)
        seconds = self.policy(running.lease.task).handler_timeout_seconds
        of_kind = seconds != self._delivery.handler_timeout_seconds
        limit = f"the timeout of its kind ({seconds} s)" if of_kind else f"handlerTimeoutSeconds ({seconds})"
        timeout = TimeoutError(f"task ran longer than {limit}")
        timeout.__cause__ = error  # its traceback shows where the handler was
        return self._failed(running, timeout)

    def _seen(self, running: Running, error: Seen) -> Settlement:
        fields = logs.of_task(running.lease.task) | {"why": bounded(message_of(error))}
        log.info("duplicate_skipped", extra={"fields": fields})
        return Settlement("ack", running.lease)

    def _failed(self, running: Running, error: BaseException) -> Settlement:
        if running.shared and isinstance(error, (Seen, Bury)):  # raised, so of which task?
            return self._retried(running, error, described(error))
        if isinstance(error, Seen):
            return self._seen(running, error)
        if isinstance(error, Bury):
            return self._bury(running, error)
        if isinstance(error, Retry):
            return self._asked(running, error)
        cancelled_itself = isinstance(error, asyncio.CancelledError)
        return self._retried(
            running, error, "the handler cancelled itself" if cancelled_itself else described(error)
        )

    def _asked(self, running: Running, error: Retry) -> Settlement:
        if isinstance(error, NotStarted):
            self._lacking(running, error)
            return _released(running)
        if isinstance(error, ArgumentsRefused):
            return self._unfit(running, error)
        check_retry(error.delay_ms, charge=error.charge)  # a subclass may not have called Retry.__init__
        event = _EVENTS.get(type(error), _EVENTS[Retry])
        return self._retried(
            running, error, described(error), delay_ms=error.delay_ms, charge=error.charge, event=event
        )

    def _unfit(self, running: Running, error: ArgumentsRefused) -> Settlement:
        why = bounded(message_of(error))
        waits = of_refused(running.lease, why)
        if waits is None:
            said = f"{why}; no worker that they fit has come within {REFUSED_MS // 60_000} minutes"
            return self._bury(running, Bury(said))
        delay_ms, text = waits
        event = _EVENTS[ArgumentsRefused]
        return self._retried(running, error, text, delay_ms=delay_ms, charge=False, event=event)

    def _retried(
        self,
        running: Running,
        error: BaseException | None,
        text: str,
        *,
        delay_ms: int | None = None,
        charge: bool = True,
        event: str = _EVENTS[Retry],
    ) -> Settlement:
        task, failures = running.lease.task, running.lease.failures + 1
        policy = self.policy(task)
        if delay_ms is None:
            delay_ms = backoff.delay_ms(failures, policy.backoff, random.random())  # noqa: S311 -- jitter
        fields = logs.of_task(task) | {"attempt": task.attempt}
        max_attempts = NEVER_LAST if running.shared else policy.max_attempts  # the last attempt is one alone
        last = charge and failures >= max_attempts
        fields |= {"last_attempt": True} if last else {"retry_in_ms": delay_ms}
        log.warning(
            event, extra={"fields": fields | {"error": text} | (_trace(error) if running.explains else {})}
        )
        return Settlement(
            "retry",
            running.lease,
            (delay_ms, int(charge), _kept(text, error) if last else text),
            max_attempts=max_attempts,
        )

    def _bury(self, running: Running, error: Bury) -> Settlement:
        text = bounded(message_of(error)) or "buried by the handler"
        fields = logs.of_task(running.lease.task) | {"error": text} | _trace(error)
        log.warning("handler_buried", extra={"fields": fields})
        return Settlement("bury", running.lease, (_kept(text, error),))


def _raised(error: BaseException | None) -> BaseException | None:
    """Return the exception whose traceback is useful: for Retry and Bury, only their cause."""
    if isinstance(error, tuple(each for each in _EVENTS if each is not Retry)):
        return None  # a guard's error: its message is sufficient
    if isinstance(error, (Retry, Bury)):
        return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def _trace(error: BaseException | None) -> dict[str, Any]:
    raised = _raised(error)
    found = traceback_of(raised) if raised is not None else []
    return {"traceback": found} if found else {}


def _kept(text: str, error: BaseException | None) -> str:
    """Return the error text of a dead letter: with the last lines of the traceback."""
    raised = _raised(error)
    return text if raised is None else with_frames(text, raised)


def _handed_back(running: Running) -> Settlement | None:
    """Return how a task ends that must not begin: it was released already, or could not be."""
    return None if running.cancelled_for == "lease_lost" else _released(running)


def _released(running: Running) -> Settlement:
    return Settlement("release", running.lease, (running.lease.task.due_ms,))

"""The interface of handlers, and the error for a handler that cannot be set up."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from delayq.errors import InvalidDocument
from delayq.guards.coverage import EVERY_TASK, coverage
from delayq.handlers.guarded import apart

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from delayq.app.accepted import Described
    from delayq.contract import Delivery
    from delayq.contract import Guard as GuardSpec
    from delayq.contract.files import Reference
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.protocol.envelope import Task


HandlerCall: TypeAlias = "Callable[[Task], Awaitable[object]]"
Kinds: TypeAlias = "Mapping[tuple[str, int | None], Delivery]"
"""Kinds and versions, None for every version, and how each is delivered."""
BatchCall: TypeAlias = "Callable[[Sequence[Task]], Awaitable[Sequence[BaseException | None]]]"
"""Returns for each task, in their order, None or the exception with which its run ended."""


class Batch(NamedTuple):
    """How a kind runs that takes several tasks at once."""

    call: BatchCall
    limit: int  # tasks of one call
    wait_seconds: float  # for how long a call waits until it is full


NO_BATCHES: Final[Mapping[tuple[str, int], Batch]] = MappingProxyType({})


class Handler:
    """A coroutine function and its resources.

    `call` is an attribute, not a method: for a Python callable it *is* the user's coroutine function, so that a task
    runs without a further frame. A return acks the task. Retry retries it, Bury makes it a dead letter, and any other
    exception is a failed attempt.
    """

    call: HandlerCall
    """What the worker awaits for each task; the value is ignored."""
    kinds: Kinds | None = None
    """The kinds that it can run; None: every task, delivered as in the document."""
    batches: Mapping[tuple[str, int], Batch] = NO_BATCHES
    """Those of `kinds` that take several tasks at once; under the guard, after `under`."""
    asking: AbstractSet[str] = frozenset()
    """The kinds that ask for the guard, besides those that the document names."""

    def coverage(self, spec: GuardSpec | None) -> Coverage:
        """Return the tasks under the document's guard. InvalidDocument for a kind that no handler has, or see check."""
        known = None if self.kinds is None else [name for name, _ in self.kinds]
        found = coverage(spec, asking=self.asking, known=known)
        self.check(found)
        return found

    def check(self, coverage: Coverage) -> None:
        """Raise HandlerSetupError if it cannot run the tasks that are not under the guard."""

    def under(self, guard: Guard[Any], coverage: Coverage = EVERY_TASK) -> HandlerCall:
        """Return what the worker awaits instead of `call` under a guard. HandlerSetupError if it does not fit."""
        guarded, plain = self._guarded(guard), self.call
        if coverage.kinds is None:
            return guarded
        return lambda task: (guarded if task.kind in coverage else plain)(task)

    def _guarded(self, guard: Guard[Any]) -> HandlerCall:
        """Return `call` inside the guard's block: here, with effects elsewhere than in its transaction."""
        return apart(self.call, guard.for_effects_elsewhere())

    def described(self) -> Mapping[tuple[str, int], Described] | None:
        """Return the arguments of the kinds of an App that it runs itself; None without an App."""
        return None

    def lacks(self) -> dict[Reference, str]:
        """Return the mounted files that calls need and that cannot be used yet, and why: the worker waits for them."""
        return {}

    async def start(self) -> None:
        """Open shared resources; HandlerSetupError if one that the document names is missing."""

    async def close(self) -> None:
        """Close the resources of `start`. No new call begins; a call that ignores its cancellation may still run."""


class HandlerSetupError(InvalidDocument):
    """The document's handler cannot run here."""

    def __init__(self, field: str, problem: str) -> None:
        """Store the document's path and the problem separately, as the parser's problems do."""
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def optional_fields(task: Task) -> dict[str, str]:
    """Return the metadata that only some tasks have, for services and commands. Names are those of HTTP headers."""
    found = {"Kind": task.kind, "Kind-Version": str(task.kind_version)} if task.kind else {}
    if task.nominal_ms is not None:
        found |= {"Schedule": task.schedule, "Nominal-Ms": str(task.nominal_ms)}
    if task.tags:
        found["Tags"] = " ".join(task.tags)  # which have no spaces
    if task.expires_ms is not None:
        found["Expires-Ms"] = str(task.expires_ms)
    return found

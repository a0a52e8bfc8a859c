"""The part of a blocking call that goes to one server, step by step. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq.connection.routing import Send
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.connection.place import Place
    from delayq.connection.pool import Wire
    from delayq.connection.round_trip import Command


@dataclass(slots=True, eq=False)
class Part:
    """Calls about one shard of a Cluster, or all calls without a Cluster; or raw commands."""

    slot: int
    positions: Sequence[int] = ()  # of the calls in the whole request
    tail: Sequence[Command] = ()  # the commands that confirm them
    steps: Generator[Any, Any, Any] | None = None
    step: Any = None  # the next Send or Pause
    outcome: Any = None  # the result of the steps, or an error

    def begin(self, steps: Generator[Any, Any, Any]) -> None:
        """Compute the first step."""
        self.steps, self.step = steps, next(steps)

    def advance(self, sent: tuple[Place, list[Any]] | None) -> bool:
        """Pass the replies of a step on; returns whether there is another step."""
        assert self.steps is not None  # noqa: S101 -- begin() was called
        try:
            self.step = self.steps.send(sent)
        except StopIteration as over:
            self.outcome = over.value
            return False
        return True

    @property
    def stays(self) -> bool:
        """Whether the next step must use the connection of the previous one."""
        return isinstance(self.step, Send) and self.step.same

    def results(self) -> tuple[list[Any], list[Any]]:
        """Return the results of the calls and the confirmations, with errors as values."""
        if isinstance(self.outcome, DelayQError):
            return [self.outcome] * len(self.positions), [self.outcome]
        answers, confirmed = self.outcome
        return answers, confirmed


@dataclass(slots=True, eq=False)
class Batch:
    """Parts that share one round trip and one confirmation."""

    place: Place
    wire: Wire
    parts: list[Part]
    tail: Sequence[Command]

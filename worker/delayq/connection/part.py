"""What of blocking calls goes to one server together, step by step. Nothing here waits."""

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
    """Calls about one shard of a Cluster, or all of them where there is one server; or raw commands."""

    slot: int
    positions: Sequence[int] = ()  # of the calls among all
    tail: Sequence[Command] = ()  # what goes behind them
    steps: Generator[Any, Any, Any] | None = None
    step: Any = None  # Send or Pause, the next
    outcome: Any = None  # what the steps returned, or why they could not end

    def begin(self, steps: Generator[Any, Any, Any]) -> None:
        """Have a first step."""
        self.steps, self.step = steps, next(steps)

    def advance(self, sent: tuple[Place, list[Any]] | None) -> bool:
        """Pass on what came of a step; returns whether there is another."""
        assert self.steps is not None  # noqa: S101 -- it was begun
        try:
            self.step = self.steps.send(sent)
        except StopIteration as over:
            self.outcome = over.value
            return False
        return True

    @property
    def stays(self) -> bool:
        """Whether the next step is for the connection of the one before."""
        return isinstance(self.step, Send) and self.step.same

    def results(self) -> tuple[list[Any], list[Any]]:
        """Return the answers to the calls, and what servers confirmed; errors as values."""
        if isinstance(self.outcome, DelayQError):
            return [self.outcome] * len(self.positions), [self.outcome]
        answers, confirmed = self.outcome
        return answers, confirmed


@dataclass(slots=True, eq=False)
class Batch:
    """Parts whose steps one connection carries together. What is behind them is asked once."""

    place: Place
    line: Wire
    parts: list[Part]
    tail: Sequence[Command]

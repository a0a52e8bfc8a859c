"""The answers of several independent Redis servers, until a majority decides.

A slow server whose answer can no longer change the result is not waited for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def majority(servers: int) -> int:
    """Return the size of a majority, of which any two overlap: 2 of 3, 3 of 4, 3 of 5."""
    return servers // 2 + 1


@dataclass(eq=False)
class Poll(Generic[T]):
    """The servers' answers: yes, no, an error, or none yet."""

    tasks: Sequence[asyncio.Task[Any]]
    yes: Callable[[T], bool]

    @property
    def answers(self) -> list[Any]:
        """The answer of each server; an error is a value, None means no answer yet."""
        return [task.result() if task.done() else None for task in self.tasks]

    @property
    def votes(self) -> list[bool | None]:
        """The vote of each server; None for an error or no answer yet."""
        return [
            None if answer is None or isinstance(answer, DelayQError) else self.yes(answer)
            for answer in self.answers
        ]

    @property
    def errors(self) -> list[DelayQError]:
        """The servers' errors."""
        return [answer for answer in self.answers if isinstance(answer, DelayQError)]

    @property
    def granted(self) -> bool:
        """Whether a majority voted yes."""
        return self.votes.count(True) >= majority(len(self.tasks))

    @property
    def denied(self) -> bool:
        """Whether so many servers voted no that the others are not a majority."""
        return self.votes.count(False) > len(self.tasks) - majority(len(self.tasks))

    @property
    def failed(self) -> bool:
        """Whether so many servers are unreachable that the others are not a majority."""
        return len(self.errors) > len(self.tasks) - majority(len(self.tasks))

    @property
    def verdict(self) -> bool | None:
        """Whether the majority voted yes; None while undecided."""
        return True if self.granted else False if self.denied else None

    async def decided(self) -> Poll[T]:
        """Wait until no further answer can change the result."""
        while not (self.granted or self.denied or self.failed):
            pending = [task for task in self.tasks if not task.done()]
            if not pending:
                break
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        return self

    async def whole(self) -> Poll[T]:
        """Wait until each server has answered or timed out."""
        await asyncio.wait(self.tasks)
        return self

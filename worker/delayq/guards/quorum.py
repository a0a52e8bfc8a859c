"""The same question to several independent Redis servers at once, until enough of them have answered.

A slow server is not waited for: as soon as its answer could change nothing any more, it may come when it likes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delayq.connection import AsyncConnection
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.connection import Address
    from delayq.guards.background import Background
    from delayq.protocol.commands import Call

T = TypeVar("T")


def majority(servers: int) -> int:
    """Return how many of them any two majorities have one in common of: 2 of 3, 3 of 4, 3 of 5."""
    return servers // 2 + 1


@dataclass(eq=False)
class Poll(Generic[T]):
    """What each server has answered: yes, no, an error, or nothing yet."""

    tasks: Sequence[asyncio.Task[Any]]
    yes: Callable[[T], bool]

    @property
    def answers(self) -> list[Any]:
        """Server by server; an error is a value, None stands for no answer yet."""
        return [task.result() if task.done() else None for task in self.tasks]

    @property
    def votes(self) -> list[bool | None]:
        """Server by server: whether it said yes; None for an error, or nothing yet."""
        return [
            None if answer is None or isinstance(answer, DelayQError) else self.yes(answer)
            for answer in self.answers
        ]

    @property
    def errors(self) -> list[DelayQError]:
        """What kept servers from answering."""
        return [answer for answer in self.answers if isinstance(answer, DelayQError)]

    @property
    def granted(self) -> bool:
        """Whether a majority said yes."""
        return self.votes.count(True) >= majority(len(self.tasks))

    @property
    def denied(self) -> bool:
        """Whether so many said no that the others are no majority."""
        return self.votes.count(False) > len(self.tasks) - majority(len(self.tasks))

    @property
    def failed(self) -> bool:
        """Whether so many cannot be reached that the others are no majority."""
        return len(self.errors) > len(self.tasks) - majority(len(self.tasks))

    @property
    def verdict(self) -> bool | None:
        """Whether the majority said yes; None when neither that nor the contrary is certain."""
        return True if self.granted else False if self.denied else None

    async def decided(self) -> Poll[T]:
        """Return when nothing that is still to come can change what there is to conclude."""
        while not (self.granted or self.denied or self.failed):
            pending = [task for task in self.tasks if not task.done()]
            if not pending:
                break
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        return self

    async def whole(self) -> Poll[T]:
        """Return when each server has answered, or had its time."""
        await asyncio.wait(self.tasks)
        return self


class Servers:
    """Connections to independent servers, each with its own time-out."""

    def __init__(self, addresses: Sequence[Address], background: Background) -> None:
        """Connect on first use. What is not waited for goes into `background`."""
        self.addresses = tuple(addresses)
        self._connections = [AsyncConnection(address) for address in addresses]
        self._background = background

    def ask(self, call: Call[T], yes: Callable[[T], bool] = bool) -> Poll[T]:
        """Send a call to each server; the answers come in whether or not anybody waits."""
        return Poll([self.tell(at, call) for at in range(len(self._connections))], yes)

    def tell(self, at: int, call: Call[Any]) -> asyncio.Task[Any]:
        """Send a call to one server."""
        return self._background.start(_answer(self._connections[at], call))

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(connection.close() for connection in self._connections))


async def _answer(connection: AsyncConnection, call: Call[T]) -> T | DelayQError:
    try:
        return await connection.one(call)
    except DelayQError as error:
        return error

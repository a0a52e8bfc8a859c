"""A concurrency limit with fair queuing by owner.

Pods run images of tenants, and one that hangs occupies a slot for seconds. In a FIFO queue, one namespace with many of
these would delay all others. Here the namespace with the fewest slots gets the next free one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items in the order they came; the next is of the owner that has the fewest taken, and waited longest."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Item]] = {}
        self._taken: Counter[str] = Counter()

    def put(self, owner: str, item: Item) -> None:
        self._waiting.setdefault(owner, deque()).append(item)

    def take(self, most: int) -> tuple[str, Item] | None:
        """Take the next item, of an owner with fewer than `most` taken; None while there is none."""
        allowed = (owner for owner in self._waiting if self._taken[owner] < most)
        owner = min(allowed, key=self._taken.__getitem__, default=None)
        if owner is None:
            return None
        line = self._waiting.pop(owner)
        item = line.popleft()
        if line:
            self._waiting[owner] = line  # behind owners that have as few
        self._taken[owner] += 1
        return owner, item

    def give_back(self, owner: str) -> None:
        """Count one of the owner's as taken no longer."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]


class Limiter:
    """Places for a number of owners."""

    def __init__(self, number: int, each: int) -> None:
        """`each` is how many one owner can have at most."""
        self._free, self._each = number, each
        self._line = FairQueue[asyncio.Future[None]]()

    @asynccontextmanager
    async def place(self, owner: str, wait_seconds: float) -> AsyncIterator[None]:
        """Have a place meanwhile; TimeoutError when there is none for so long."""
        turn = asyncio.get_running_loop().create_future()
        self._line.put(owner, turn)
        self._share_out()
        try:
            async with asyncio.timeout(wait_seconds):
                await turn
            yield
        finally:
            if not turn.cancelled():
                self._free += 1
                self._line.give_back(owner)
                self._share_out()

    def _share_out(self) -> None:
        while self._free and (found := self._line.take(self._each)):
            owner, turn = found
            if turn.cancelled():  # its owner stopped waiting
                self._line.give_back(owner)
            else:
                self._free -= 1
                turn.set_result(None)

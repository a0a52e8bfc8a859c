"""A bounded number of places for what is done at a time, shared out evenly among those who want them.

Pods run images of tenants, and one that hangs keeps its place for seconds. In a plain FIFO, one namespace with enough
of them would delay all others. Here the next free place goes to the namespace with the fewest.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Limiter:
    """Places for a number of owners."""

    def __init__(self, number: int, each: int) -> None:
        """`each` is how many one owner can have at most."""
        self._free, self._each = number, each
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, owner: str, wait_seconds: float) -> AsyncIterator[None]:
        """Have a place meanwhile; TimeoutError when there is none for so long."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._share_out()
        try:
            async with asyncio.timeout(wait_seconds):
                await turn
            yield
        finally:
            self._leave(owner, turn)

    def _share_out(self) -> None:
        while self._free:
            waiting = [owner for owner in self._waiting if self._held[owner] < self._each]
            if not waiting:
                return
            owner = min(waiting, key=self._held.__getitem__)
            line = self._waiting.pop(owner)
            turn = line.popleft()
            if line:
                self._waiting[owner] = line  # behind others that have as few
            if not turn.cancelled():
                self._free -= 1
                self._held[owner] += 1
                turn.set_result(None)

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        """Give the place back, or leave the line: a turn without a waiter was cancelled."""
        if turn.cancelled():
            line = self._waiting.get(owner)
            if line is not None and turn in line:
                line.remove(turn)
                if not line:
                    del self._waiting[owner]
            return
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._share_out()

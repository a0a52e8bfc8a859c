"""A cache that shares one result among all callers within a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

FRESH_SECONDS = 1.0


class ScrapeCache(Generic[T]):
    """The result of an expensive call: cached for a second; concurrent callers share one call."""

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, T]], fresh_seconds: float = FRESH_SECONDS
    ) -> None:
        """Call nothing yet."""
        self._ask, self._fresh_seconds = ask, fresh_seconds
        self._asked: asyncio.Task[T] | None = None
        self._answered_at = 0.0  # by the event loop's clock

    async def get(self) -> T:
        """Return the result, or raise the call's error. Cancelling one caller does not affect others."""
        if self._asked is None or (self._asked.done() and self._old(self._asked)):
            self._asked = asyncio.ensure_future(self._ask())
            self._asked.add_done_callback(self._answered)
        return await asyncio.shield(self._asked)

    def _old(self, asked: asyncio.Task[T]) -> bool:
        if asked.cancelled() or asked.exception() is not None:
            return True
        return asyncio.get_running_loop().time() - self._answered_at >= self._fresh_seconds

    def _answered(self, _: asyncio.Task[T]) -> None:
        self._answered_at = asyncio.get_running_loop().time()

"""An interruptible sleep. asyncio.wait_for would start a task for every sleep."""

from __future__ import annotations

import asyncio


class Alarm:
    """One waiting coroutine; ring() wakes it, or makes its next wait() return at once."""

    def __init__(self) -> None:
        """Start without a pending ring."""
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the waiting coroutine; without one, the next wait() returns at once."""
        self._rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when rung, or after `seconds`."""
        if not self._rung and seconds > 0:
            loop = asyncio.get_running_loop()
            self._sleeper = loop.create_future()
            timer = loop.call_later(seconds, self.ring)
            try:
                await self._sleeper
            finally:
                timer.cancel()
        self._rung = False

"""Whether Redis confirms writes as spec.durability asks: the scanner tests it as a client does before its first write.

A version says little: some servers reply to WAITAOF before their file is on the disk. Not here: risks that Redis
reports itself (durability.py).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from delayq.errors import DelayQError, Unavailable
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.client.aio import Client
    from delayq.connection import AsyncConnection

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 600.0
"""Between two tests of servers that can confirm: one takes up to five seconds, and settings may change."""


class DurabilityCheck:
    """Tests the servers of one queue."""

    name, blocks = "durability_check", True

    def __init__(self, client: Callable[[], Client], connection: AsyncConnection) -> None:
        """`client` makes one with the durability of the document. After each connect, the server may be another one."""
        self._client, self._connection = client, connection
        self._connects, self._next_at = 0, 0.0  # of the last test; monotonic seconds
        self.problem = ""  # why Redis cannot confirm
        self.alarm = Alarm()

    async def step(self) -> float:
        """Test if it is time, if the last test failed, or if the server may be another one."""
        connects = self._connection.connects
        if self.problem or connects != self._connects or time.monotonic() >= self._next_at:
            self._note(await self._tested())
            self._connects, self._next_at = connects, time.monotonic() + AGAIN_SECONDS
        return LOOK_SECONDS

    async def _tested(self) -> str:
        async with self._client() as client:
            try:
                await client.check_durability()
            except Unavailable:
                raise
            except DelayQError as error:
                return str(error)
        return ""

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.warning("writes_unconfirmed", extra={"fields": {"error": problem}})
            else:
                log.info("writes_confirmed")

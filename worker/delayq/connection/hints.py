"""Blocking on hint lists, on a connection of its own. Any hint may be lost: whoever waits has a timer too."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from delayq.connection.round_trip import packed, translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.address import Address

BLOCK_SECONDS = 30  # how long one BLPOP lasts
WATCHDOG_SECONDS = 40  # a connection silent for longer is dead, whatever TCP thinks


class Hints:
    """BLPOP on lists that hold at most one token each."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure."""
        self.address = address
        self._connection = address.connection()
        self._interrupted = False

    async def wait(self, keys: Sequence[str]) -> str | None:
        """Return the list that held a token, None after BLOCK_SECONDS or interrupt(). Unavailable without Redis."""
        self._interrupted = False
        try:
            async with asyncio.timeout(WATCHDOG_SECONDS):
                await self._connection.connect()
                command = packed([("BLPOP", *keys, BLOCK_SECONDS)])
                await self._connection.send_packed_command(command, check_health=False)
                reply = await self._connection.read_response(disable_decoding=True, timeout=math.inf)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            await self.close()
            if self._interrupted:
                return None
            raise translated(error, self.address.where, "BLPOP") from error
        except asyncio.CancelledError:
            await self.close()
            raise
        return reply[0].decode() if reply else None

    async def interrupt(self) -> None:
        """End a wait that is under way: other lists are to be waited on."""
        self._interrupted = True
        await self.close()

    async def close(self) -> None:
        """Disconnect; a token on its way is lost, as hints may be."""
        await self._connection.disconnect(nowait=True)

"""All shards on one server: the whole way there is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.connection.round_trip import confirmation, done, round_trip
from delayq.connection.routing import Holding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.multiplexer import Multiplexer
    from delayq.connection.round_trip import Command
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind


class Single:
    """One server, or whichever is the master of a few."""

    def __init__(self, line: Multiplexer) -> None:
        """Send everything on this line."""
        self._line = line

    @property
    def connects(self) -> int:
        """How many connections there have been."""
        return self._line.connects

    async def driven(
        self, calls: Sequence[Call[Any]], behind: Behind | None, shards: Sequence[Keys]
    ) -> tuple[list[Any], list[Any]]:
        """Answer calls, errors as values; then what is behind them. Unavailable when the round trip fails."""
        line = self._line
        where = line.connector.where
        stats = calls[0].keys.stats if calls else shards[0].stats if shards else ""
        steps = round_trip(calls, where, line.brought)
        commands, confirmed = next(steps), list[Any]()
        while True:
            got = await line.send(commands, behind, stats)
            replies, last = got[: len(commands)], got[len(commands) :]
            if behind is not None and done(replies):
                confirmed.append(confirmation(behind.commands(stats), last, where))
            try:
                commands = steps.send(replies)
            except StopIteration as over:
                return over.value, confirmed

    async def send(self, commands: Sequence[Command], keys: Keys | None) -> list[Any]:  # noqa: ARG002 -- all on it
        """Send raw commands."""
        return await self._line.send(commands)

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the one."""
        return [Holding(await self._line.connector.name(), tuple(shards))]

    async def close(self) -> None:
        """Close; calls still waiting fail with Unavailable."""
        await self._line.close()

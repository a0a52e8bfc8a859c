"""All shards on one server: the whole way there is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.connection.routing import Holding, answered_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.multiplexer import Multiplexer
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Answers
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
        stats = calls[0].keys.stats if calls else shards[0].stats if shards else ""
        tail = behind.commands(stats) if behind else ()
        steps = answered_calls(calls, tail, line.connector.where, brought=line.brought)
        step: Any = next(steps)
        while True:
            got = await line.send(step.commands, behind, stats)
            try:
                step = steps.send((None, got))  # type: ignore[arg-type]  # there is one server
            except StopIteration as over:
                answers: Answers = over.value
                return answers

    async def send(self, commands: Sequence[Command], keys: Keys | None) -> list[Any]:  # noqa: ARG002 -- all on it
        """Send raw commands."""
        return await self._line.send(commands)

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the one."""
        return [Holding(await self._line.connector.name(), tuple(shards))]

    async def close(self) -> None:
        """Close; calls still waiting fail with Unavailable."""
        await self._line.close()

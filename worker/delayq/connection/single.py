"""All shards on one server: one multiplexer carries all calls."""

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
    from delayq.protocol.write_durability import ConfirmCommands


class Single:
    """One server, or the current master with Sentinels."""

    def __init__(self, multiplexer: Multiplexer) -> None:
        """Send all calls through this multiplexer."""
        self._multiplexer = multiplexer

    @property
    def connects(self) -> int:
        """The number of connections opened so far."""
        return self._multiplexer.connects

    async def execute(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None, shards: Sequence[Keys]
    ) -> tuple[list[Any], list[Any]]:
        """Return the results of calls, with errors as values; then the confirmation. Unavailable without a reply."""
        multiplexer = self._multiplexer
        stats = calls[0].keys.stats if calls else shards[0].stats if shards else ""
        tail = confirm.commands(stats) if confirm else ()
        steps = answered_calls(calls, tail, multiplexer.connector.where, loading=multiplexer.loading)
        step: Any = next(steps)
        while True:
            got = await multiplexer.send(step.commands, confirm, stats)
            try:
                step = steps.send((None, got))  # type: ignore[arg-type]  # there is one server
            except StopIteration as over:
                answers: Answers = over.value
                return answers

    async def send(self, commands: Sequence[Command], keys: Keys | None) -> list[Any]:  # noqa: ARG002 -- one server has all
        """Send raw commands."""
        return await self._multiplexer.send(commands)

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the one server."""
        return [Holding(await self._multiplexer.connector.name(), tuple(shards))]

    async def close(self) -> None:
        """Close. Calls still waiting fail with Unavailable."""
        await self._multiplexer.close()

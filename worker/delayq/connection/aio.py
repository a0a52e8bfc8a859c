"""The connection for asyncio. Calls go to the one server or, in a Cluster, to the node that holds their shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from delayq.connection.cluster import ClusterConnection
from delayq.connection.connectors import connector_of
from delayq.connection.multiplexer import Multiplexer
from delayq.connection.round_trip import answered, each_answered
from delayq.connection.routing import Holding, answered_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.address import Address
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Answers
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import ConfirmCommands

T = TypeVar("T")


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


class AsyncConnection:
    """Any number of coroutines may share one. Calls made during a round trip go out together in the next one."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, after a failure, and when the server is no longer the master."""
        self.address = address
        self._transport: Single | ClusterConnection
        if address.is_cluster:
            self._transport = ClusterConnection(address)
        else:
            multiplexer = Multiplexer(
                connector_of(address), address.timeout_seconds, idle_seconds=address.health_check_seconds
            )
            self._transport = Single(multiplexer)

    @property
    def connects(self) -> int:
        """The number of connections opened so far."""
        return self._transport.connects

    async def run(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None = None, shards: Sequence[Keys] = ()
    ) -> list[Any]:
        """Return the results of calls, in order. Raises the first error after all have run; Unavailable without Redis.

        With `confirm`, the last item is the list of replies to these commands, or the error. If several servers ran
        calls, it is the worst of theirs. Without calls, the commands go to all servers that hold `shards`, and the
        result has one list of replies for each server. Requests that go out together share one confirmation, which
        covers all writes of this connection.
        """
        return answered(*await self._transport.execute(calls, confirm, shards))

    async def one(self, call: Call[T]) -> T:
        """Return the result of one call."""
        answer: T = (await self.run((call,)))[0]
        return answer

    async def answers(self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None = None) -> list[Any]:
        """Return the results of calls, in order, with errors as values; then the replies to `confirm`, as in run().

        In a Cluster, calls whose node cannot be reached get Unavailable. If no node can be reached, this may raise it.
        """
        return each_answered(*await self._transport.execute(calls, confirm, ()))

    async def send(self, commands: Sequence[Command], keys: Keys | None = None) -> list[Any]:
        """Send raw commands to the server that holds a shard, or to any server. Error replies are values."""
        return await self._transport.send(commands, keys)

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the servers that hold these shards, each with the shards it holds; Unavailable if unknown."""
        return await self._transport.servers(shards)

    async def close(self) -> None:
        """Close. Calls still waiting fail with Unavailable."""
        await self._transport.close()

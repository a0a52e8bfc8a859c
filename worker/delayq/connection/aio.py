"""The connection for asyncio: calls go to the one server, or each to the server of a Cluster that holds its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from delayq.connection.cluster import ClusterConnection
from delayq.connection.connectors import connector_of
from delayq.connection.multiplexer import Multiplexer
from delayq.connection.round_trip import answered, each_answered
from delayq.connection.single import Single

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.address import Address
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Holding
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind

T = TypeVar("T")


class AsyncConnection:
    """Any number of coroutines may share one; calls made while others are under way go out together."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure or when a server turns out not to be the master."""
        self.address = address
        self._way: Single | ClusterConnection
        if address.apart:
            self._way = ClusterConnection(address)
        else:
            line = Multiplexer(
                connector_of(address), address.timeout_seconds, idle_seconds=address.health_check_seconds
            )
            self._way = Single(line)

    @property
    def connects(self) -> int:
        """How many connections there have been."""
        return self._way.connects

    async def run(
        self, calls: Sequence[Call[Any]], behind: Behind | None = None, shards: Sequence[Keys] = ()
    ) -> list[Any]:
        """Answer each call in order. Raises the first error, after all have been tried; Unavailable without Redis.

        With something `behind` the calls, its replies come last, as one list, or its error as a value: the worst of
        them where several servers have the calls. Without calls, it is for the servers that hold these shards, and the
        answer a list of replies from each. Requests that go out together share what is behind them: it speaks of all
        that this connection wrote.
        """
        return answered(*await self._way.driven(calls, behind, shards))

    async def one(self, call: Call[T]) -> T:
        """Answer a single call."""
        answer: T = (await self.run((call,)))[0]
        return answer

    async def answers(self, calls: Sequence[Call[Any]], behind: Behind | None = None) -> list[Any]:
        """Answer each call in order, a refused one with its error as the value; then as run() what is behind them.

        In a Cluster that is Unavailable for those whose server is away. Where all are, it may be raised.
        """
        return each_answered(*await self._way.driven(calls, behind, ()))

    async def send(self, commands: Sequence[Command], keys: Keys | None = None) -> list[Any]:
        """Send raw commands to the server that holds a shard, or to any; replies in order, an error as a value."""
        return await self._way.send(commands, keys)

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the servers that hold these shards now, each with those it holds; Unavailable if unknown."""
        return await self._way.servers(shards)

    async def close(self) -> None:
        """Close; calls still waiting fail with Unavailable."""
        await self._way.close()

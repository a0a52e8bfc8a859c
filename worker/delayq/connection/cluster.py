"""Calls to the nodes of a Cluster: one multiplexer for each node, and redirects when a slot has moved.

A node that cannot be reached fails the calls about its own shards only.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delayq.connection.connectors import NodeConnector
from delayq.connection.discovery import discovery_of
from delayq.connection.multiplexer import Multiplexer, moved
from delayq.connection.round_trip import CLOSED
from delayq.connection.routing import UNCONFIRMED, Holding, Pause, Routes, answered_calls, routed
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.connection.address import Address
    from delayq.connection.discovery import Discovery
    from delayq.connection.place import Place
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Answers, Send
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import ConfirmCommands


class ClusterConnection:
    """Connections to the nodes of a Cluster."""

    def __init__(self, address: Address) -> None:
        """Connect on first use."""
        self.address = address
        self._multiplexers: dict[Place, Multiplexer] = {}
        self._connects = 0  # of closed multiplexers
        self._closing: set[asyncio.Task[None]] = set()
        self._discovery: Discovery | None = None
        self._over = asyncio.Event()  # set when closed, permanently

    @property
    def connects(self) -> int:
        """The number of connections opened so far."""
        return self._connects + sum(multiplexer.connects for multiplexer in self._multiplexers.values())

    @property
    def discovery(self) -> Discovery:
        """The discovery of this Cluster, which notifies this object of changes. Unavailable once closed."""
        if self._over.is_set():
            raise Unavailable(self.address.where, CLOSED)
        if self._discovery is None:
            self._discovery = discovery_of(self.address)
            self._discovery.watchers.add(self)
        return self._discovery

    def topology_changed(self) -> None:
        """Close the connections to nodes that are no longer masters."""
        if self._over.is_set():
            return
        masters = self.discovery.topology.masters()
        for place in [place for place in self._multiplexers if place not in masters]:
            multiplexer = self._multiplexers.pop(place)
            self._connects += multiplexer.connects
            task = asyncio.create_task(multiplexer.close(moved(str(place))))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _multiplexer(self, place: Place) -> Multiplexer:
        discovery = self.discovery
        if place not in self._multiplexers:
            self._multiplexers[place] = Multiplexer(
                NodeConnector(discovery, self.address, place),
                self.address.timeout_seconds,
                idle_seconds=self.address.health_check_seconds,
            )
        return self._multiplexers[place]

    async def execute(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None, shards: Sequence[Keys]
    ) -> tuple[list[Any], list[Any]]:
        """Return the results of calls, with errors as values; then the confirmations of each server."""
        if not calls and confirm is not None:
            held = [each.shards[0] for each in await self.servers(shards)]
            results = await asyncio.gather(*(self._execute_shard((), confirm, keys) for keys in held))
            return [], [each for _, confirmed in results for each in confirmed]
        groups: dict[int, list[int]] = {}
        for at, call in enumerate(calls):
            groups.setdefault(call.keys.slot, []).append(at)
        if len(groups) == 1:
            return await self._execute_shard(calls, confirm, calls[0].keys)
        results = await asyncio.gather(
            *(
                self._execute_shard([calls[at] for at in group], confirm, calls[group[0]].keys)
                for group in groups.values()
            )
        )
        answers = [None] * len(calls)
        for group, (found, _) in zip(groups.values(), results, strict=True):
            for at, answer in zip(group, found, strict=True):
                answers[at] = answer
        return answers, [each for _, confirmed in results for each in confirmed]

    async def _execute_shard(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None, keys: Keys
    ) -> tuple[list[Any], list[Any]]:
        """Run calls about one shard. If its server cannot be reached, each call gets that error."""
        try:
            return await self._execute_at(calls, confirm, keys)
        except DelayQError as error:
            return [error] * len(calls), [] if confirm is None else [error]

    async def _execute_at(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None, keys: Keys
    ) -> tuple[list[Any], list[Any]]:
        tail = confirm.commands(keys.stats) if confirm else ()
        where = str(await self._holder(keys))
        answers: Answers = await self._run_steps(
            answered_calls(calls, tail, where, routes=self._routes()), confirm, keys
        )
        return answers

    async def send(self, commands: Sequence[Command], keys: Keys | None) -> list[Any]:
        """Send raw commands to the server that holds a shard, or to any master."""
        if keys is not None:
            replies: list[Any] = (await self._run_steps(routed(commands, (), self._routes()), None, keys))[0]
            return replies
        connected = [multiplexer for multiplexer in self._multiplexers.values() if multiplexer.connects]
        return await (
            connected[0] if connected else self._multiplexer(await self.discovery.any_master())
        ).send(commands)

    def _routes(self) -> Routes:
        until = time.monotonic() + self.address.timeout_seconds
        return Routes(self.discovery.apply_redirect, lambda: until - time.monotonic())

    async def _run_steps(
        self, steps: Generator[Send | Pause, Any, Any], confirm: ConfirmCommands | None, keys: Keys
    ) -> Any:  # noqa: ANN401 -- the result of the steps
        """Execute the steps about one shard on the server that holds it, even if the slot moves meanwhile."""
        step, used = next(steps), None
        while True:
            sent: Any = None
            if isinstance(step, Pause):
                await self._pause(step.seconds)
            else:
                place = step.place or await self._holder(keys)
                multiplexer = self._multiplexer(place)
                if step.place is None:
                    sent = place, await multiplexer.send(step.commands, confirm, keys.stats)
                else:
                    sent = place, await multiplexer.send(step.commands)
                if step.same and used != (multiplexer, multiplexer.connects):
                    raise Unavailable(str(place), UNCONFIRMED)
                used = multiplexer, multiplexer.connects
            try:
                step = steps.send(sent)
            except StopIteration as over:
                return over.value

    async def _holder(self, keys: Keys) -> Place:
        return await self.discovery.holder(keys.slot, within=self.address.timeout_seconds)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return the servers that hold these shards."""
        held: dict[str, list[Keys]] = {}
        for keys in shards:
            held.setdefault(await self._name(keys), []).append(keys)
        return [Holding(where, tuple(those)) for where, those in held.items()]

    async def _name(self, keys: Keys) -> str:
        try:
            return str(await self._holder(keys))
        except Unavailable:
            if self.discovery.topology.masters():
                return ""
            raise

    async def close(self) -> None:
        """Close. Calls still waiting fail with Unavailable."""
        self._over.set()
        for multiplexer in list(self._multiplexers.values()):
            await multiplexer.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._discovery is not None:
            await self._discovery.unsubscribe(self)
            self._discovery = None

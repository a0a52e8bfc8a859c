"""Shards on the nodes of a Cluster: one line to each node that holds some, and calls sent on when a slot has moved.

One node that is away costs the calls about its own shards; the others are answered beside them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delayq.connection.connectors import Node
from delayq.connection.discovery import discovery_of
from delayq.connection.multiplexer import Multiplexer, moved
from delayq.connection.routing import Holding, Pause, Routes, answered_calls, routed
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
    from delayq.protocol.write_durability import Behind


class ClusterConnection:
    """Lines to the nodes of a Cluster."""

    def __init__(self, address: Address) -> None:
        """Connect on first use."""
        self.address = address
        self._lines: dict[Place, Multiplexer] = {}
        self._connects = 0  # of lines that are closed
        self._closing: set[asyncio.Task[None]] = set()
        self._directory: Discovery | None = None
        self._over = asyncio.Event()  # closed, and not opened again

    @property
    def connects(self) -> int:
        """How many connections there have been."""
        return self._connects + sum(line.connects for line in self._lines.values())

    @property
    def directory(self) -> Discovery:
        """What the process knows of this Cluster; from now on we are told what is new. Unavailable once closed."""
        if self._over.is_set():
            raise Unavailable(self.address.where, "connection closed")
        if self._directory is None:
            self._directory = discovery_of(self.address)
            self._directory.watchers.add(self)
        return self._directory

    def moved(self) -> None:
        """Close the lines to nodes that are masters of nothing any more."""
        if self._over.is_set():
            return
        masters = self.directory.topology.masters()
        for place in [place for place in self._lines if place not in masters]:
            line = self._lines.pop(place)
            self._connects += line.connects
            task = asyncio.create_task(line.close(moved(str(place))))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _line(self, place: Place) -> Multiplexer:
        directory = self.directory
        if place not in self._lines:
            self._lines[place] = Multiplexer(
                Node(directory, self.address, place),
                self.address.timeout_seconds,
                idle_seconds=self.address.health_check_seconds,
            )
        return self._lines[place]

    async def driven(
        self, calls: Sequence[Call[Any]], behind: Behind | None, shards: Sequence[Keys]
    ) -> tuple[list[Any], list[Any]]:
        """Answer calls, errors as values; then what is behind them, of each server."""
        if not calls and behind is not None:
            held = [each.shards[0] for each in await self.servers(shards)]
            parts = await asyncio.gather(*(self._part((), behind, keys) for keys in held))
            return [], [each for _, confirmed in parts for each in confirmed]
        groups: dict[int, list[int]] = {}
        for at, call in enumerate(calls):
            groups.setdefault(call.keys.slot, []).append(at)
        if len(groups) == 1:
            return await self._part(calls, behind, calls[0].keys)
        parts = await asyncio.gather(
            *(
                self._part([calls[at] for at in group], behind, calls[group[0]].keys)
                for group in groups.values()
            )
        )
        answers = [None] * len(calls)
        for group, (found, _) in zip(groups.values(), parts, strict=True):
            for at, answer in zip(group, found, strict=True):
                answers[at] = answer
        return answers, [each for _, confirmed in parts for each in confirmed]

    async def _part(
        self, calls: Sequence[Call[Any]], behind: Behind | None, keys: Keys
    ) -> tuple[list[Any], list[Any]]:
        """Answer calls about one shard. When their server is away, that is the answer to each."""
        try:
            return await self._answer(calls, behind, keys)
        except DelayQError as error:
            return [error] * len(calls), [] if behind is None else [error]

    async def _answer(
        self, calls: Sequence[Call[Any]], behind: Behind | None, keys: Keys
    ) -> tuple[list[Any], list[Any]]:
        tail = behind.commands(keys.stats) if behind else ()
        where = str(await self._holder(keys))
        answers: Answers = await self._driven(
            answered_calls(calls, tail, where, routes=self._routes()), behind, keys
        )
        return answers

    async def send(self, commands: Sequence[Command], keys: Keys | None) -> list[Any]:
        """Send raw commands to the holder of a shard, or to anybody."""
        if keys is not None:
            replies: list[Any] = (await self._driven(routed(commands, (), self._routes()), None, keys))[0]
            return replies
        lines = [line for line in self._lines.values() if line.connects]
        return await (lines[0] if lines else self._line(await self.directory.anybody())).send(commands)

    def _routes(self) -> Routes:
        until = time.monotonic() + self.address.timeout_seconds
        return Routes(self.directory.learn, lambda: until - time.monotonic())

    async def _driven(
        self, steps: Generator[Send | Pause, Any, Any], behind: Behind | None, keys: Keys
    ) -> Any:  # noqa: ANN401 -- what the steps return
        """Do what the steps about one shard ask for, at the server that holds it, also if that changes meanwhile."""
        step, used = next(steps), None
        while True:
            sent: Any = None
            if isinstance(step, Pause):
                await self._pause(step.seconds)
            else:
                place = step.place or await self._holder(keys)
                line = self._line(place)
                if step.place is None:
                    sent = place, await line.send(step.commands, behind, keys.stats)
                else:
                    sent = place, await line.send(step.commands)
                if step.same and used != (line, line.connects):
                    raise Unavailable(str(place), "the connection was lost before it confirmed anything")
                used = line, line.connects
            try:
                step = steps.send(sent)
            except StopIteration as over:
                return over.value

    async def _holder(self, keys: Keys) -> Place:
        return await self.directory.holder(keys.slot, within=self.address.timeout_seconds)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def servers(self, shards: Sequence[Keys]) -> list[Holding]:
        """Return who holds which of these shards."""
        held: dict[str, list[Keys]] = {}
        for keys in shards:
            held.setdefault(await self._name(keys), []).append(keys)
        return [Holding(where, tuple(those)) for where, those in held.items()]

    async def _name(self, keys: Keys) -> str:
        try:
            return str(await self._holder(keys))
        except Unavailable:
            if self.directory.topology.masters():
                return ""
            raise

    async def close(self) -> None:
        """Close; calls still waiting fail with Unavailable."""
        self._over.set()
        for line in list(self._lines.values()):
            await line.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._directory is not None:
            await self._directory.leave(self)
            self._directory = None

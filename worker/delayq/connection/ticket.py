"""Blocking calls under way: what routing.py asks for, sent to all servers that it concerns, a batch to each."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from delayq.connection.deadline import CHECK_SECONDS, DOUBT_SECONDS, Deadline
from delayq.connection.part import Batch, Part
from delayq.connection.pool import Pool
from delayq.connection.round_trip import not_master
from delayq.connection.routing import Pause, Routes, answered_calls, routed, sent_once
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from delayq.connection.place import Place
    from delayq.connection.pool import Wire
    from delayq.connection.round_trip import Command
    from delayq.connection.servers import Servers
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind


class Ticket:
    """Parts that are sent and unanswered, or still to be sent."""

    def __init__(self, servers: Servers, behind: Behind | None = None) -> None:
        """What is `behind` the calls is asked of each server that has some."""
        self._servers, self._behind = servers, behind
        self._deadline = Deadline(servers.address.timeout_seconds)
        self._routes: Routes | None = None
        if servers.address.apart:
            self._routes = Routes(servers.discovery.learn, lambda: self._deadline.left)
        self._parts: list[Part] = []
        self._todo: list[Part] = []
        self._sent: list[Batch] = []

    # what is asked

    def add_calls(self, calls: Sequence[Call[Any]]) -> None:
        """Have calls answered, those about one shard together."""
        if self._routes is None:
            self._add(calls, calls[0].keys, range(len(calls)))
            return
        groups: dict[int, list[int]] = defaultdict(list)
        for at, call in enumerate(calls):
            groups[call.keys.slot].append(at)
        for positions in groups.values():
            self._add([calls[at] for at in positions], calls[positions[0]].keys, positions)

    def add_shards(self, shards: Iterable[Keys]) -> None:
        """Have what is behind no calls answered by each server that holds some of these shards."""
        found: dict[object, Keys] = {}
        for keys in shards:
            try:
                found.setdefault(self._servers.discovery.holder(keys.slot, self._deadline), keys)
            except DelayQError:
                found[keys] = keys
        for keys in found.values():
            self._add((), keys, ())

    def _add(self, calls: Sequence[Call[Any]], keys: Keys, positions: Sequence[int]) -> None:
        part = Part(keys.slot, positions, self._behind.commands(keys.stats) if self._behind else ())
        try:
            where = str(self._servers.discovery.holder(keys.slot, self._deadline))
        except DelayQError as error:
            part.outcome = error
            self._parts.append(part)
        else:
            self._begin(part, answered_calls(calls, part.tail, where, routes=self._routes))

    def add_commands(self, commands: Sequence[Command], keys: Keys | None) -> None:
        """Have raw commands answered by the server that holds a shard, or by any."""
        if self._routes is None or keys is None:
            self._begin(Part(0), sent_once(commands))
        else:
            self._begin(Part(keys.slot), routed(commands, (), self._routes))

    def _begin(self, part: Part, steps: Generator[Any, Any, Any]) -> None:
        part.begin(steps)
        self._parts.append(part)
        self._todo.append(part)

    # what came of it

    @property
    def unsent(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._todo)

    @property
    def holds(self) -> bool:
        """Whether it has a connection."""
        return bool(self._sent)

    def results(self) -> tuple[list[Any], list[Any]]:
        """Return the answers to the calls in order, and what servers confirmed; errors as values."""
        answers: dict[int, Any] = {}
        confirmed: list[Any] = []
        for part in self._parts:
            found, said = part.results()
            answers.update(zip(part.positions, found, strict=True))
            confirmed += said
        return [answers[at] for at in sorted(answers)], confirmed if self._behind else []

    def replies(self) -> list[Any]:
        """Return the replies to raw commands; raises what kept them away."""
        [part] = self._parts
        if isinstance(part.outcome, DelayQError):
            raise part.outcome
        replies: list[Any] = part.outcome[0]
        return replies

    # sending and reading

    def start(self, *, free: bool) -> None:
        """Send what a free connection can be had for, if any may be taken; wait for nothing but to connect."""
        if free:
            self._send(Pool.take)

    def renew(self) -> None:
        """Start the deadline again, because the caller did something else meanwhile."""
        self._deadline.renew()

    def finish(self, *, alone: bool) -> None:
        """Read what was sent, and send what is left, until all is answered.

        No connection is waited for while another is held; `alone`: the thread holds none for another ticket.
        """
        try:
            while self._sent or self._todo:
                while self._sent:
                    self._read(self._sent[0])
                if self._todo:
                    self._rest()
                    self._send(Pool.wait if alone else Pool.more)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close connections whose replies will not be read."""
        while self._sent:
            try:
                self._sent[0].line.drop()
            finally:
                self._give(self._sent[0])

    def _give(self, batch: Batch) -> None:
        self._sent.remove(batch)
        self._servers.give(batch.place, batch.line)

    def _rest(self) -> None:
        """Pause, if there is nothing else to do."""
        if not all(isinstance(part.step, Pause) for part in self._todo):
            return
        time.sleep(min(part.step.seconds for part in self._todo))
        paused, self._todo = self._todo, []
        for part in paused:
            self._advance(part, None)

    def _send(self, first: Callable[[Pool, Deadline], Wire | None]) -> None:
        """Send one batch to each server; what finds no connection stays. `first` gets the first connection."""
        batches = self._by_place()
        for nth, (place, parts) in enumerate(batches.items()):
            take = Pool.take if self._sent else first
            try:
                line = take(self._servers.pool(place), self._share(len(batches) - nth))
                if line is None:
                    return
                self._write(place, line, parts)
            except DelayQError as error:
                self._failed(place, parts, error)

    def _by_place(self) -> dict[Place, list[Part]]:
        found: dict[Place, list[Part]] = defaultdict(list)
        for part in [part for part in self._todo if not isinstance(part.step, Pause)]:
            try:
                place = part.step.place or self._servers.discovery.holder(part.slot, self._deadline)
                found[place].append(part)
            except DelayQError as error:
                self._end(part, error)
        return found

    def _share(self, left: int) -> Deadline:
        """Return how long to wait for a connection, with so many servers still to come.

        A server that accepts no connection must not use up the others' time; each has its own time to connect.
        """
        if left == 1:
            return self._deadline
        seconds = self._deadline.left
        return self._deadline.within(max(seconds / left, min(seconds / 2, CHECK_SECONDS)))

    def _write(self, place: Place, line: Wire, parts: list[Part]) -> None:
        tail = next((part.tail for part in parts if part.step.place is None), ())
        batch = Batch(place, line, parts, tail)
        self._sent.append(batch)
        self._todo = [part for part in self._todo if part not in parts]
        try:
            commands = [command for part in parts for command in part.step.commands]
            line.write([*commands, *tail], self._deadline)
        except DelayQError:
            self._give(batch)
            raise

    def _read(self, batch: Batch) -> None:
        try:
            self._wait(batch)
            found = [batch.line.read(len(part.step.commands), self._deadline) for part in batch.parts]
            last = batch.line.read(len(batch.tail), self._deadline) if batch.tail else []
        except DelayQError as error:
            self._give(batch)
            self._failed(batch.place, batch.parts, error)
            return
        if any(any(map(not_master, replies)) for replies in (*found, last)):
            batch.line.drop()
            self._servers.deposed(batch.place)
        for part, replies in zip(batch.parts, found, strict=True):
            self._advance(part, (batch.place, replies if part.step.place else [*replies, *last]))
            if part in self._todo and part.stays:
                self._ask_again(batch, part)
        self._give(batch)

    def _ask_again(self, batch: Batch, part: Part) -> None:
        """Do a step on the connection of the one before."""
        self._todo.remove(part)
        try:
            if not batch.line.connected:
                raise Unavailable(str(batch.place), "the connection was lost before it confirmed anything")
            batch.line.write(part.step.commands, self._deadline)
            self._advance(part, (batch.place, batch.line.read(len(part.step.commands), self._deadline)))
        except DelayQError as error:
            self._failed(batch.place, [part], error)

    def _wait(self, batch: Batch) -> None:
        """While no answer comes, ask whether another server is the master now; then what was sent is lost."""
        slots = [part.slot for part in batch.parts if part.step.place is None]
        while slots and self._servers.address.kind != "standalone" and not self._deadline.over:
            if batch.line.readable(min(DOUBT_SECONDS, self._deadline.left)):
                return
            successor = self._servers.successor(batch.place, slots[0], self._deadline)
            if successor is not None:
                batch.line.drop()
                why = f"no answer, and {successor} is the master now"
                raise Unavailable(str(batch.place), why, outage="timeout")

    def _advance(self, part: Part, sent: tuple[Place, list[Any]] | None) -> None:
        if part.advance(sent):
            self._todo.append(part)

    def _failed(self, place: Place, parts: Sequence[Part], error: DelayQError) -> None:
        self._servers.discovery.doubt(place)
        for part in parts:
            self._end(part, error)

    def _end(self, part: Part, error: DelayQError) -> None:
        part.outcome = error
        if part in self._todo:
            self._todo.remove(part)

"""Blocking calls in progress: executes the steps of routing.py, with one batch for each server."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq.connection.deadline import CHECK_SECONDS, LATE_SECONDS, Deadline
from delayq.connection.pool import Pool
from delayq.connection.round_trip import not_master
from delayq.connection.routing import UNCONFIRMED, Pause, Routes, Send, answered_calls, routed, sent_once
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from delayq.connection.place import Place
    from delayq.connection.pool import Loan, Wire
    from delayq.connection.round_trip import Command
    from delayq.connection.sync import Servers
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import ConfirmCommands


@dataclass(slots=True, eq=False)
class Part:
    """Calls about one shard of a Cluster, or all calls without a Cluster; or raw commands."""

    slot: int
    positions: Sequence[int] = ()  # of the calls in the whole request
    tail: Sequence[Command] = ()  # the commands that confirm them
    steps: Generator[Any, Any, Any] | None = None
    step: Any = None  # the next Send or Pause
    outcome: Any = None  # the result of the steps, or an error

    def begin(self, steps: Generator[Any, Any, Any]) -> None:
        """Compute the first step."""
        self.steps, self.step = steps, next(steps)

    def advance(self, sent: tuple[Place, list[Any]] | None) -> bool:
        """Pass the replies of a step on; returns whether there is another step."""
        assert self.steps is not None  # noqa: S101 -- begin() was called
        try:
            self.step = self.steps.send(sent)
        except StopIteration as over:
            self.outcome = over.value
            return False
        return True

    @property
    def stays(self) -> bool:
        """Whether the next step must use the connection of the previous one."""
        return isinstance(self.step, Send) and self.step.same

    def results(self) -> tuple[list[Any], list[Any]]:
        """Return the results of the calls and the confirmations, with errors as values."""
        if isinstance(self.outcome, DelayQError):
            return [self.outcome] * len(self.positions), [self.outcome]
        answers, confirmed = self.outcome
        return answers, confirmed


@dataclass(slots=True, eq=False)
class Batch:
    """Parts that share one round trip and one confirmation."""

    place: Place
    loan: Loan
    parts: list[Part]
    tail: Sequence[Command] = ()

    @property
    def wire(self) -> Wire:
        """The connection."""
        return self.loan.wire


class Ticket:
    """The parts of one request: sent without a reply yet, or still to send."""

    def __init__(self, servers: Servers, confirm: ConfirmCommands | None = None) -> None:
        """`confirm` goes to each server that gets calls."""
        self._servers, self._confirm = servers, confirm
        self._deadline = Deadline(servers.address.timeout_seconds)
        self._routes: Routes | None = None
        if servers.address.is_cluster:
            deadline = self._deadline  # without `self`, so that an interrupted call is gone at once
            self._routes = Routes(servers.discovery.apply_redirect, lambda: deadline.left)
        self._parts: list[Part] = []
        self._todo: list[Part] = []
        self._sent: list[Batch] = []
        self._exchanging = False  # whether it takes or returns a connection

    # the request

    def add_calls(self, calls: Sequence[Call[Any]]) -> None:
        """Add calls, those about one shard together."""
        if self._routes is None:
            self._add(calls, calls[0].keys, range(len(calls)))
            return
        groups: dict[int, list[int]] = defaultdict(list)
        for at, call in enumerate(calls):
            groups[call.keys.slot].append(at)
        for positions in groups.values():
            self._add([calls[at] for at in positions], calls[positions[0]].keys, positions)

    def add_shards(self, shards: Iterable[Keys]) -> None:
        """Add the confirmation, without calls, for each server that holds some of these shards."""
        found: dict[object, Keys] = {}
        for keys in shards:
            try:
                found.setdefault(self._servers.discovery.holder(keys.slot, self._deadline), keys)
            except DelayQError:
                found[keys] = keys
        for keys in found.values():
            self._add((), keys, ())

    def _add(self, calls: Sequence[Call[Any]], keys: Keys, positions: Sequence[int]) -> None:
        part = Part(keys.slot, positions, self._confirm.commands(keys.stats) if self._confirm else ())
        try:
            where = str(self._servers.discovery.holder(keys.slot, self._deadline))
        except DelayQError as error:
            part.outcome = error
            self._parts.append(part)
        else:
            self._begin(part, answered_calls(calls, part.tail, where, routes=self._routes))

    def add_commands(self, commands: Sequence[Command], keys: Keys | None) -> None:
        """Add raw commands for the server that holds a shard, or for any."""
        if self._routes is None or keys is None:
            self._begin(Part(0), sent_once(commands))
        else:
            self._begin(Part(keys.slot), routed(commands, (), self._routes))

    def _begin(self, part: Part, steps: Generator[Any, Any, Any]) -> None:
        part.begin(steps)
        self._parts.append(part)
        self._todo.append(part)

    # the result

    @property
    def unsent(self) -> bool:
        """Whether a part is still to send."""
        return bool(self._todo)

    @property
    def holds(self) -> bool:
        """Whether it holds a connection, or may."""
        return self._exchanging or bool(self._sent)

    def results(self) -> tuple[list[Any], list[Any]]:
        """Return the results of the calls in order, and the confirmations, with errors as values."""
        answers: dict[int, Any] = {}
        confirmed: list[Any] = []
        for part in self._parts:
            found, confirmations = part.results()
            answers.update(zip(part.positions, found, strict=True))
            confirmed += confirmations
        return [answers[at] for at in sorted(answers)], confirmed if self._confirm else []

    def replies(self) -> list[Any]:
        """Return the replies to raw commands, or raise the error."""
        [part] = self._parts
        if isinstance(part.outcome, DelayQError):
            raise part.outcome
        replies: list[Any] = part.outcome[0]
        return replies

    # sending and reading

    def start(self, *, free: bool) -> None:
        """Send as far as connections are free, if `free`; wait only to connect."""
        if not free:
            return
        try:
            self._send(Pool.take)
        except BaseException:
            self.abandon()
            raise

    def renew(self) -> None:
        """Restart the deadline, because the caller did something else meanwhile."""
        self._deadline.renew()

    def finish(self, *, alone: bool) -> None:
        """Read replies and send the rest, until all parts are done.

        It never waits for a connection while it holds another. `alone`: no other ticket of this thread has a
        connection.
        """
        try:
            while self._sent or self._todo:
                while self._sent:
                    self._read(self._sent[0])
                if self._todo:
                    self._pause()
                    self._send(Pool.wait if alone else Pool.more)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close connections whose replies will not be read, and send nothing more."""
        self._todo = []
        while self._sent:
            try:
                self._sent[0].wire.drop()
            finally:
                self._give(self._sent[0])

    def _give(self, batch: Batch) -> None:
        self._exchanging = True
        try:
            self._sent.remove(batch)
            self._servers.give(batch.place, batch.loan)
        finally:
            self._exchanging = False

    def _pause(self) -> None:
        """Pause, if all parts wait."""
        if not all(isinstance(part.step, Pause) for part in self._todo):
            return
        time.sleep(min(part.step.seconds for part in self._todo))
        paused, self._todo = self._todo, []
        for part in paused:
            self._advance(part, None)

    def _send(self, first: Callable[[Pool, Deadline], Loan | None]) -> None:
        """Send one batch to each server; parts without a connection stay. `first` gets the first connection."""
        batches = self._by_place()
        for nth, (place, parts) in enumerate(batches.items()):
            take = Pool.take if self._sent else first
            self._exchanging = True
            try:
                loan = take(self._servers.pool(place), self._share(len(batches) - nth))
                if loan is None:
                    return
                self._sent.append(Batch(place, loan, parts))
                self._write(self._sent[-1])
            except DelayQError as error:
                self._failed(place, parts, error)
            finally:
                self._exchanging = False

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
        """Return how long to wait for a connection, with `left` servers still to come.

        A server that accepts no connection must not use up the time of the others.
        """
        if left == 1:
            return self._deadline
        seconds = self._deadline.left
        return self._deadline.within(max(seconds / left, min(seconds / 2, CHECK_SECONDS)))

    def _write(self, batch: Batch) -> None:
        batch.tail = next((part.tail for part in batch.parts if part.step.place is None), ())
        self._todo = [part for part in self._todo if part not in batch.parts]
        try:
            commands = [command for part in batch.parts for command in part.step.commands]
            batch.wire.write([*commands, *batch.tail], self._deadline)
        except DelayQError:
            self._give(batch)
            raise

    def _read(self, batch: Batch) -> None:
        try:
            self._wait(batch)
            found = [batch.wire.read(len(part.step.commands), self._deadline) for part in batch.parts]
            last = batch.wire.read(len(batch.tail), self._deadline) if batch.tail else []
        except DelayQError as error:
            self._give(batch)
            self._failed(batch.place, batch.parts, error)
            return
        if any(any(map(not_master, replies)) for replies in (*found, last)):
            batch.wire.drop()
            self._servers.demoted(batch.place)
        for part, replies in zip(batch.parts, found, strict=True):
            self._advance(part, (batch.place, replies if part.step.place else [*replies, *last]))
            if part in self._todo and part.stays:
                self._send_on_same_wire(batch, part)
        self._give(batch)

    def _send_on_same_wire(self, batch: Batch, part: Part) -> None:
        """Execute a step on the connection of the previous one."""
        self._todo.remove(part)
        try:
            if not batch.wire.connected:
                raise Unavailable(str(batch.place), UNCONFIRMED)
            batch.wire.write(part.step.commands, self._deadline)
            self._advance(part, (batch.place, batch.wire.read(len(part.step.commands), self._deadline)))
        except DelayQError as error:
            self._failed(batch.place, [part], error)

    def _wait(self, batch: Batch) -> None:
        """Wait for a reply; while it is late, check whether another server is the master now. Then fail the batch."""
        slots = [part.slot for part in batch.parts if part.step.place is None]
        while slots and self._servers.address.kind != "standalone" and not self._deadline.over:
            if batch.wire.readable(min(LATE_SECONDS, self._deadline.left)):
                return
            successor = self._servers.successor(batch.place, slots[0], self._deadline)
            if successor is not None:
                batch.wire.drop()
                why = f"no answer, and {successor} is the master now"
                raise Unavailable(str(batch.place), why, outage="timeout")

    def _advance(self, part: Part, sent: tuple[Place, list[Any]] | None) -> None:
        if part.advance(sent):
            self._todo.append(part)

    def _failed(self, place: Place, parts: Sequence[Part], error: DelayQError) -> None:
        self._servers.discovery.suspect(place)
        for part in parts:
            self._end(part, error)

    def _end(self, part: Part, error: DelayQError) -> None:
        part.outcome = error
        if part in self._todo:
            self._todo.remove(part)

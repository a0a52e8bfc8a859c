"""One blocking round trip to all servers that its calls concern, and on to wherever they send it."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from delayq.connection.deadline import CHECK_SECONDS, Deadline
from delayq.connection.part import Part
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from delayq.connection.place import Place
    from delayq.connection.pool import Wire
    from delayq.connection.redirects import Redirect
    from delayq.connection.servers import Servers
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind

PAUSE_SECONDS: Final = 0.05  # before what a migration or an election holds up is tried again


class Ticket:
    """Calls under way, in a part for each server."""

    def __init__(
        self,
        servers: Servers,
        calls: Sequence[Call[Any]],
        behind: Behind | None = None,
        shards: Sequence[Keys] = (),
    ) -> None:
        """Without calls, what is behind them is for the servers that hold these shards."""
        self.unsent = False  # in whole or in part, for want of a free connection
        self._servers, self._calls, self._behind = servers, calls, behind
        self._deadline = Deadline(servers.address.timeout_seconds)
        self.confirmations: list[list[Any] | DelayQError] = []
        self._answers: list[Any] = [None] * len(calls)
        self._again: dict[int, Redirect | None] = {}
        self._held: dict[Part, list[Keys]] = {}  # the shards that a part without calls is about
        self._lost: list[Part] = []  # of those, what met a shard that is elsewhere
        self._parts = list(self._grouped(range(len(calls))) if calls else self._asked(shards))

    @property
    def answers(self) -> list[Any]:
        """The answer of each call, an error as a value."""
        return self._answers

    # who is asked what

    def _grouped(self, positions: Iterable[int]) -> Iterator[Part]:
        """Group calls by the server that holds their shard."""
        found: dict[Place, list[int]] = defaultdict(list)
        for at in positions:
            try:
                found[self._holder(self._calls[at].keys)].append(at)
            except DelayQError as error:
                self._answers[at] = error
                self._failed(error)
        for place, each in found.items():
            yield self._part(place, each)

    def _part(self, place: Place, positions: Sequence[int], *, asking: bool = False) -> Part:
        calls = [self._calls[at] for at in positions]
        return Part(
            *(self._servers, place, calls[0].keys, self._deadline, calls, positions),
            behind=self._marked(calls[0].keys),
            asking=asking,
        )

    def _asked(self, shards: Iterable[Keys]) -> Iterator[Part]:
        found: dict[Place, list[Keys]] = defaultdict(list)
        for keys in shards:
            try:
                found[self._holder(keys)].append(keys)
            except DelayQError as error:
                self._failed(error)
        for place, those in found.items():
            part = self._nothing_but(place, those[0])
            self._held[part] = those
            yield part

    def _nothing_but(self, place: Place, keys: Keys) -> Part:
        """Return a part without calls, of what would be behind them."""
        return Part(self._servers, place, keys, self._deadline, behind=self._marked(keys))

    def _holder(self, keys: Keys) -> Place:
        return self._servers.discovery.holder(keys.slot, self._deadline)

    def _marked(self, keys: Keys) -> Sequence[Any]:
        return self._behind.commands(keys.stats) if self._behind else ()

    # sending

    def start(self, *, free: bool) -> None:
        """Send what a free connection can be had for, if any may be taken; wait for nothing but to connect."""
        for nth, part in enumerate(self._parts):
            try:
                patience = self._share(len(self._parts) - nth)
                line = self._servers.pool(part.place).take(patience) if free else None
                if line is None:
                    self.unsent, free = True, False
                    continue
                self._send(part, line)
            except DelayQError as error:
                part.error = error

    def _share(self, left: int) -> Deadline:
        """Return how long to wait for a connection, with so many servers still to come.

        A server that accepts no connection must not use up the others' time; each has its own time to connect.
        """
        seconds = self._deadline.left
        return self._deadline.within(max(seconds / left, min(seconds / 2, CHECK_SECONDS)))

    def _send(self, part: Part, line: Wire) -> None:
        try:
            part.send(line)
        except BaseException:
            self._release(part)
            raise

    def _release(self, part: Part) -> None:
        line, part.line = part.line, None
        if line is not None:
            self._servers.give(part.place, line)

    # reading

    def renew(self) -> None:
        """Start the deadline again, because the caller did something else meanwhile."""
        self._deadline.renew()

    @property
    def holds(self) -> bool:
        """Whether it has a connection."""
        return any(part.line is not None for part in self._parts)

    def finish(self, *, alone: bool) -> None:
        """Read what was sent, then send and read the rest: no connection is waited for while another is held.

        `alone`: the thread holds none for another ticket.
        """
        waiting = [part for part in self._parts if part.line is None and part.error is None]
        try:
            for part in self._parts:
                if part not in waiting:
                    self._read(part)
            for nth, part in enumerate(waiting):
                patience = self._share(len(waiting) - nth)
                if alone:
                    self._wait_and_read(part, patience)
                else:
                    self._at_once(part, patience)
            self._follow()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close connections whose replies will not be read."""
        for part in self._parts:
            if part.line is not None:
                try:
                    part.line.drop()
                finally:
                    self._release(part)

    def _wait_and_read(self, part: Part, patience: Deadline) -> None:
        try:
            self._send(part, self._servers.pool(part.place).wait(patience))
        except DelayQError as error:
            part.error = error
        self._read(part)

    def _read(self, part: Part) -> None:
        answers: list[Any] = [part.error] * len(part.calls)
        if part.error is None:
            try:
                answers = part.answers()
            except DelayQError as error:
                part.error, answers = error, [error] * len(part.calls)
            except BaseException:
                if part.line is not None:
                    part.line.drop()
                raise
            finally:
                self._release(part)
        for at, answer in zip(part.positions, answers, strict=True):
            self._answers[at] = answer
        if part.error is None:
            self._again.update(part.elsewhere)
            self._confirm(part)
        else:
            self._servers.discovery.doubt(part.place)
            self._failed(part.error)

    def _failed(self, error: DelayQError) -> None:
        """Nothing is confirmed by a server that did not answer."""
        if self._behind:
            self.confirmations.append(error)

    def _confirm(self, part: Part) -> None:
        """Keep what was confirmed; ask once more where the mark belonged to a slot that is elsewhere."""
        if not self._behind:
            return
        done = [at for at in part.positions if at not in part.elsewhere]
        if part.unmarked and part.positions:
            if done:
                keys = self._calls[done[0]].keys
                self._at_once(self._nothing_but(part.place, keys))
        elif part.unmarked and part in self._held and not self._deadline.over:
            self._lost.append(part)
        else:
            self.confirmations.append(part.confirmation())

    # following

    def _follow(self) -> None:
        """Send calls on to where they belong, and again what a migration holds up, until their time is over."""
        pause = 0.0
        while (self._again or self._lost) and not self._deadline.over:
            (again, self._again), (lost, self._lost) = (self._again, {}), (self._lost, [])
            told = [*again.values(), *(part.told for part in lost)]
            time.sleep(PAUSE_SECONDS if None in told else pause)
            pause = PAUSE_SECONDS
            for said in told:
                if said and said.kind == "MOVED":
                    self._servers.discovery.learn(said)
            shards = [keys for part in lost for keys in self._held[part]]
            for part in [*self._sent_on(again), *self._asked(shards)]:
                self._at_once(part)
        self.confirmations += [part.confirmation() for part in self._lost]
        if self._behind and not self.confirmations:  # nothing was done in time
            self.confirmations += [each for each in self._answers if isinstance(each, DelayQError)][:1]

    def _sent_on(self, again: Mapping[int, Redirect | None]) -> Iterator[Part]:
        told: dict[tuple[Place, bool], list[int]] = defaultdict(list)
        for at, said in again.items():
            if said:
                told[said.place, said.kind == "ASK"].append(at)
        for (place, asking), positions in told.items():
            yield self._part(place, positions, asking=asking)
        yield from self._grouped(at for at, said in again.items() if said is None)

    def _at_once(self, part: Part, patience: Deadline | None = None) -> None:
        """Send and read without waiting for a connection: the thread may hold one for another ticket."""
        try:
            self._send(part, self._servers.pool(part.place).more(patience or self._deadline))
        except DelayQError as error:
            part.error = error
        self._read(part)

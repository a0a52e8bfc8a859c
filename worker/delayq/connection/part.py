"""The share of one server in a blocking round trip: calls sent there, what is behind them, and what came back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, ResponseError

from delayq.connection.deadline import DOUBT_SECONDS
from delayq.connection.redirects import redirect, soon
from delayq.connection.round_trip import confirmation, not_master, reply_text, round_trip
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.connection.deadline import Deadline
    from delayq.connection.place import Place
    from delayq.connection.pool import Wire
    from delayq.connection.redirects import Redirect
    from delayq.connection.round_trip import Command
    from delayq.connection.servers import Servers
    from delayq.errors import DelayQError
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys


@dataclass(slots=True, eq=False)
class Part:
    """With a line it is sent and unanswered; without one it has yet to be sent, has failed, or is done."""

    servers: Servers
    place: Place
    keys: Keys  # of one of the shards it is about
    deadline: Deadline  # of the whole round trip
    calls: Sequence[Call[Any]] = ()
    positions: Sequence[int] = ()  # of the calls among all
    behind: Sequence[Command] = ()  # sent after the calls, each time; only the last replies count
    asking: bool = False  # the slot is on its way there
    line: Wire | None = None
    error: DelayQError | None = None
    elsewhere: dict[int, Redirect | None] = field(default_factory=dict)
    """By position, the calls that were not done: where to ask instead, or None, to ask again in a moment."""
    last: list[Any] = field(default_factory=list)  # the replies to what is behind
    _steps: Generator[list[Command], list[Any], list[Any]] = field(init=False)
    _commands: list[Command] = field(init=False)

    def send(self, line: Wire) -> None:
        """Send all of it; the caller returns the connection to its pool. Unavailable if that fails."""
        self.line = line
        self._steps = round_trip(self.calls, str(self.place), apart=self.servers.address.apart)
        self._commands = next(self._steps)
        self._write()

    def _write(self) -> None:
        commands = [*self._commands, *self.behind]
        if self.asking:
            commands = [each for command in commands for each in (("ASKING",), command)]
        self._sent_on.write(commands, self.deadline)

    @property
    def _sent_on(self) -> Wire:
        assert self.line is not None  # noqa: S101 -- it was sent
        return self.line

    def answers(self) -> list[Any]:
        """Read until every call has its answer, an error as a value. Unavailable when the connection fails."""
        self._wait()
        positions = list(self.positions)
        while True:
            replies, self.last = self._read(len(self._commands)), self._read(len(self.behind))
            self._note(positions, replies)
            positions = [at for at, reply in zip(positions, replies, strict=True) if _unknown(reply)]
            try:
                self._commands = self._steps.send(replies)
            except StopIteration as done:
                answers: list[Any] = done.value
                return answers
            if not self._sent_on.connected:
                raise Unavailable(str(self.place), "it is not, or not yet, the master", outage="no_master")
            self._write()

    def _wait(self) -> None:
        """While no answer comes, ask whether another server is the master now; then what was sent is lost."""
        while self.servers.address.kind != "standalone" and not self.deadline.over:
            if self._sent_on.readable(min(DOUBT_SECONDS, self.deadline.left)):
                return
            successor = self.servers.successor(self.place, self.keys.slot, self.deadline)
            if successor is not None and not self.asking:
                self._sent_on.drop()
                why = f"no answer, and {successor} is the master now"
                raise Unavailable(str(self.place), why, outage="timeout")

    def _read(self, count: int) -> list[Any]:
        if not self.asking:
            return self._sent_on.read(count, self.deadline)
        return self._sent_on.read(2 * count, self.deadline)[1::2]

    def _note(self, positions: Sequence[int], replies: Sequence[object]) -> None:
        if any(map(not_master, [*replies, *self.last])):
            self._sent_on.drop()
            self.servers.deposed(self.place)
        for at, reply in zip(positions, replies, strict=True):
            said = redirect(_text(reply), self.place)
            if said or soon(_text(reply)):
                self.elsewhere[at] = said

    @property
    def unmarked(self) -> bool:
        """Whether what is behind met a slot that is elsewhere: it says nothing of the calls that were done here."""
        return any(redirect(_text(each), self.place) or soon(_text(each)) for each in self.last)

    @property
    def told(self) -> Redirect | None:
        """Where that slot is, if what is behind was told."""
        return next((said for each in self.last if (said := redirect(_text(each), self.place))), None)

    def confirmation(self) -> list[Any] | DelayQError:
        """Return the replies to what was behind, or the first error as a value."""
        return confirmation(self.behind, self.last, str(self.place))


def _text(reply: object) -> str:
    return reply_text(reply) if isinstance(reply, ResponseError) else ""


def _unknown(reply: object) -> bool:
    return isinstance(reply, NoScriptError)

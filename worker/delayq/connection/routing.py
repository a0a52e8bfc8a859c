"""Getting calls about one shard to the server that holds it, though its slot moves meanwhile. Does not wait.

Both kinds of connection drive `answered_calls`: it yields what to send, and is sent who replied what.

A slot under migration answers scripts TRYAGAIN until all of it has moved: they name keys that do not exist, and it
is unknown on which side those would be. So the call waits, as in a fail-over, for as long as it may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from delayq.connection.redirects import Redirect, down, redirect, soon
from delayq.connection.round_trip import confirmation, done, reply_text, round_trip

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from delayq.connection.place import Place
    from delayq.connection.round_trip import Command
    from delayq.errors import DelayQError
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys

HOPS: Final = 5  # redirections in a row before a pause: two nodes may each name the other for a while
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5
ASKING: Final = ("ASKING",)


class Holding(NamedTuple):
    """A server, and those of the shards that it holds."""

    where: str
    shards: tuple[Keys, ...]


class Routes(NamedTuple):
    """What is known of a Cluster: where to report redirections, and how many seconds are left for a call."""

    learn: Callable[[Redirect | None], None]
    left_seconds: Callable[[], float]


class Send(NamedTuple):
    """Send these to the holder of the slot, with what goes behind them; or to this node, as they are."""

    commands: list[Command]
    place: Place | None = None
    same: bool = False  # on the connection of the send before, or not at all


class Pause(NamedTuple):
    """Do nothing for so long."""

    seconds: float


Sent = tuple["Place", list[Any]]  # who was asked, and the replies, those to what went behind at the end
Replies = tuple[list[Any], list[list[Any]]]  # to the commands; and, of each server, to what went behind them
Answers = tuple[list[Any], "list[list[Any] | DelayQError]"]  # of the calls; and what each server confirmed


def answered_calls(
    calls: Sequence[Call[Any]],
    tail: Sequence[Command],
    where: str,
    *,
    brought: set[str] | None = None,
    routes: Routes | None = None,
) -> Generator[Send | Pause, Sent, Answers]:
    """Return the answers to calls about one shard, errors as values, and what each server said to the tail.

    Without `routes` there is one server. `brought`: see round_trip.
    """
    steps = round_trip(calls, where, brought, apart=routes is not None)
    commands, confirmed = next(steps), list[Any]()
    while True:
        replies, tails = yield from sent_once(commands) if routes is None else routed(commands, tail, routes)
        if tail and done(replies):
            confirmed += [confirmation(tail, last, where) for last in tails]
        try:
            commands = steps.send(replies)
        except StopIteration as over:
            return over.value, confirmed


def sent_once(commands: Sequence[Command]) -> Generator[Send, Sent, Replies]:
    """Return the replies of the one server."""
    _, got = yield Send(list(commands))
    return got[: len(commands)], [got[len(commands) :]]


def routed(
    commands: Sequence[Command], tail: Sequence[Command], routes: Routes
) -> Generator[Send | Pause, Sent, Replies]:
    """Return the replies to the commands and, of each server that has done some, those to the tail behind them.

    Only what was redirected is sent again, for it has done nothing. A tail speaks of what its own server has: it does
    not follow commands that were done. `routes.learn` is told of each redirection that will last, and None when
    the node finds its Cluster down.
    """
    replies: list[Any] = [None] * len(commands)
    tails: list[list[Any]] = []
    todo, place = list(range(len(commands))), None
    hops, pause = 0, FIRST_PAUSE_SECONDS
    while True:
        asked, got = yield _send([commands[at] for at in todo], tail, place)
        got = got if place is None else _asked(got, len(todo) + len(tail))
        found, last = got[: len(todo)], got[len(todo) :]
        for at, reply in zip(todo, found, strict=True):
            replies[at] = reply
        if tail and any(_done(reply, asked) for reply in found):
            tails.append((yield from _told(tail, last, asked, asking=place is not None)))
        again = [_again(reply, asked) for reply in (found if commands else last)]
        said = next((each for each in again if isinstance(each, Redirect)), None)
        if not any(again):
            return replies, tails or [last]
        todo = [at for at, each in zip(todo, again, strict=False) if each]
        place = said.place if said is not None and said.kind == "ASK" else None
        if said is not None and said.kind == "MOVED":
            routes.learn(said)
        elif any(isinstance(reply, ResponseError) and down(reply_text(reply)) for reply in got):
            routes.learn(None)
        hops += 1
        if said is None or hops > HOPS:
            if routes.left_seconds() < pause:
                return replies, tails or [last]
            yield Pause(pause)
            hops, pause = 0, min(2 * pause, LONGEST_PAUSE_SECONDS)


def _told(
    tail: Sequence[Command], last: list[Any], asked: Place, *, asking: bool
) -> Generator[Send, Sent, list[Any]]:
    """Return what a server says of the commands it has done.

    Its mark may have been in another's slot, which is elsewhere: it is asked once more, by our own key. Where that is
    elsewhere too, the result is unknown, and the redirection is the answer.
    """
    if not any(_again(reply, asked) for reply in last):
        return last
    _, got = yield Send(_with_asking(tail) if asking else list(tail), asked, same=True)
    return _asked(got, len(tail)) if asking else got


def _send(commands: list[Command], tail: Sequence[Command], place: Place | None) -> Send:
    return Send(commands) if place is None else Send(_with_asking([*commands, *tail]), place)


def _with_asking(commands: Sequence[Command]) -> list[Command]:
    return [each for command in commands for each in (ASKING, command)]


def _asked(replies: list[Any], count: int) -> list[Any]:
    """Take the replies to ASKING out."""
    return replies[1 : 2 * count : 2]


def _again(reply: object, asked: Place) -> Redirect | bool:
    """Where to send a command again, or whether it may be answered in a moment."""
    if not isinstance(reply, ResponseError):
        return False
    text = reply_text(reply)
    return redirect(text, asked) or soon(text)


def _done(reply: object, asked: Place) -> bool:
    return not (isinstance(reply, NoScriptError) or _again(reply, asked))

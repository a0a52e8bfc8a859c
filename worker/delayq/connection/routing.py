"""Routes calls about one shard to the server that holds it, while its slot may move. No I/O.

Both kinds of connection drive `answered_calls`: it yields what to send, and receives the replies and their server.

While a slot migrates, scripts get TRYAGAIN until the whole slot has moved: each names a key that does not exist, and
Redis cannot decide on which node that key would be. So the call is retried until its deadline, as in a failover.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from delayq.connection.place import Place
from delayq.connection.round_trip import confirmation, done, reply_text, round_trip

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from delayq.connection.round_trip import Command
    from delayq.errors import DelayQError
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys

HOPS: Final = 5  # consecutive redirects before a pause: two nodes may redirect to each other for a while
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5
ASKING: Final = ("ASKING",)
UNCONFIRMED: Final = (
    "the connection was lost before Redis confirmed the writes; repeat the call with the same id"
)
"""Why a call failed: a new connection cannot confirm the writes of the previous one, so it is unknown whether they are
durable. With the same id, a repeated call does not store a second task."""

# Error replies that redirect a call, or ask for a retry. Before 7.0, Redis wraps the error of a script:
# `Error running script (call to f_…): …: -MOVED …`.
_ELSEWHERE: Final = re.compile(r"(?:^|(?<=: -))(MOVED|ASK) (\d{1,5}) (\S*):(\d{1,5})(?=$|[\s,.])")
_SOON: Final = re.compile(r"(?:^|(?<=: -))(?:TRYAGAIN|CLUSTERDOWN)\b")
_UNBLOCKED: Final = re.compile(r"^UNBLOCKED\b")
# A script accessed one of its keys that had just migrated to another node.
_TORN: Final = re.compile(r"[Ss]cript attempted to access a non local key")


class Holding(NamedTuple):
    """A server and the shards that it holds."""

    where: str
    shards: tuple[Keys, ...]


class Redirect(NamedTuple):
    """The node to call instead: permanently (MOVED), or for this call (ASK), because the slot is migrating."""

    kind: Literal["MOVED", "ASK"]
    slot: int
    place: Place


class Routes(NamedTuple):
    """The routes of a Cluster: where to report redirects, and how many seconds are left for a call."""

    apply_redirect: Callable[[Redirect | None], None]
    left_seconds: Callable[[], float]


class Send(NamedTuple):
    """Send commands and the confirmation to the holder of the slot; with `place`, only the commands to that node."""

    commands: list[Command]
    place: Place | None = None
    same: bool = False  # use the connection of the previous Send, or fail


class Pause(NamedTuple):
    """Wait this long."""

    seconds: float


Sent = tuple["Place", list[Any]]  # the server and its replies, with those to the confirmation last
Replies = tuple[list[Any], list[list[Any]]]  # to the commands; and to the confirmation, of each server
Answers = tuple[
    list[Any], "list[list[Any] | DelayQError]"
]  # results of the calls; and the confirmation of each server


def answered_calls(
    calls: Sequence[Call[Any]],
    tail: Sequence[Command],
    where: str,
    *,
    loading: set[str] | None = None,
    routes: Routes | None = None,
) -> Generator[Send | Pause, Sent, Answers]:
    """Return the results of calls about one shard, with errors as values, and the confirmation of each server.

    Without `routes` there is one server. `loading`: see round_trip.
    """
    steps = round_trip(calls, where, loading, is_cluster=routes is not None)
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
    """Return the replies to the commands and, of each server that has executed some, those to the confirmation.

    Only redirected commands are sent again, which is safe because they have not run. A server confirms its own writes,
    so the confirmation does not follow commands to another server. `routes.apply_redirect` gets each permanent
    redirect, and None when the node reports that its Cluster is down.
    """
    replies: list[Any] = [None] * len(commands)
    tails: list[list[Any]] = []
    todo, place = list(range(len(commands))), None
    hops, pause = 0, FIRST_PAUSE_SECONDS
    while True:
        node, got = yield _send([commands[at] for at in todo], tail, place)
        got = got if place is None else _without_asking(got, len(todo) + len(tail))
        found, last = got[: len(todo)], got[len(todo) :]
        for at, reply in zip(todo, found, strict=True):
            replies[at] = reply
        if tail and any(_done(reply, node) for reply in found):
            tails.append((yield from _confirmed_by(tail, last, node, asking=place is not None)))
        again = [_redirect_or_retry(reply, node) for reply in (found if commands else last)]
        target = next((each for each in again if isinstance(each, Redirect)), None)
        if not any(again):
            return replies, tails or [last]
        todo = [at for at, each in zip(todo, again, strict=False) if each]
        place = target.place if target is not None and target.kind == "ASK" else None
        if target is not None and target.kind == "MOVED":
            routes.apply_redirect(target)
        elif any(isinstance(reply, ResponseError) and is_cluster_down(reply_text(reply)) for reply in got):
            routes.apply_redirect(None)
        hops += 1
        if target is None or hops > HOPS:
            if routes.left_seconds() < pause:
                return replies, tails or [last]
            yield Pause(pause)
            hops, pause = 0, min(2 * pause, LONGEST_PAUSE_SECONDS)


def _confirmed_by(
    tail: Sequence[Command], last: list[Any], node: Place, *, asking: bool
) -> Generator[Send, Sent, list[Any]]:
    """Return the confirmation of a server for the commands it has executed.

    The small write before the confirmation may have been in the slot of another batch that has moved. Then the
    confirmation is requested again, with the key of this shard. If that slot has moved too, the result is unknown, and
    the redirect is the reply.
    """
    if not any(_redirect_or_retry(reply, node) for reply in last):
        return last
    _, got = yield Send(_with_asking(tail) if asking else list(tail), node, same=True)
    return _without_asking(got, len(tail)) if asking else got


def _send(commands: list[Command], tail: Sequence[Command], place: Place | None) -> Send:
    return Send(commands) if place is None else Send(_with_asking([*commands, *tail]), place)


def _with_asking(commands: Sequence[Command]) -> list[Command]:
    return [each for command in commands for each in (ASKING, command)]


def _without_asking(replies: list[Any], count: int) -> list[Any]:
    """Remove the replies to ASKING."""
    return replies[1 : 2 * count : 2]


def _redirect_or_retry(reply: object, node: Place) -> Redirect | bool:
    """Return the redirect of a reply, or whether a retry on the same node may succeed soon."""
    if not isinstance(reply, ResponseError):
        return False
    text = reply_text(reply)
    return redirect(text, node) or is_transient(text)


def _done(reply: object, node: Place) -> bool:
    return not (isinstance(reply, NoScriptError) or _redirect_or_retry(reply, node))


def redirect(text: str, node: Place) -> Redirect | None:
    """Parse an error reply of `node`. Without a host in the reply, the host of that node counts."""
    found = _ELSEWHERE.search(text)
    if found is None:
        return None
    kind, slot, host, port = found.groups()
    place = Place(node.host if host in {"", "?"} else host, int(port))
    return Redirect("MOVED" if kind == "MOVED" else "ASK", int(slot), place)


def is_transient(text: str) -> bool:
    """Whether a retry on the same node may succeed soon."""
    return bool(_SOON.search(text) or _TORN.search(text))


def is_cluster_down(text: str) -> bool:
    """Whether the node reports that the Cluster, or the slot, is not served."""
    return text.startswith("CLUSTERDOWN") or ": -CLUSTERDOWN" in text


def is_unblocked(text: str) -> bool:
    """Whether Redis ended a blocking command because the server was demoted or the slot has moved."""
    return bool(_UNBLOCKED.search(text))

"""What both kinds of connection do with calls, without waiting: a generator of commands to send and replies to read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis.exceptions import NoScriptError, RedisError, ResponseError

from delayq.connection import outage
from delayq.errors import DelayQError, FormatTooNew, Unavailable
from delayq.protocol.write_durability import worst

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.protocol.commands import Call

Command = tuple[Any, ...]
# What Redis answers while it cannot serve but may soon: waiting and trying again is right. The code is the reply's
# first word; before 7.0, Redis wraps what a script met: `Error running script (call to f_…): …: -OOM command …`.
_PASSING = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|BUSY|OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS"
    r"|MOVED(?= \d)|ASK(?= \d)|WAIT(?:AOF)? cannot be used with replica)\b"
    r"|\b[Ss]cript attempted to access a non local key"
)

# What a server answers that is not, or not yet, the master: a new connection to the same address may find one.
_NOT_MASTER = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|READONLY|MASTERDOWN|WAIT(?:AOF)? cannot be used with replica)\b"
)

# Before 7.0, Redis puts its own words around it.
_NEWER_FORMAT = re.compile(r"\bNEWERFORMAT (\d+) (\d+)")

_QUOTING = ", with args beginning with"  # of a command that the server does not know, an AUTH among them

# redis-py: `Error 111 connecting to host:6379. Connection refused.` -- the host stands in our sentence already.
_CONNECTING = re.compile(r"Error -?\d+ connecting to \S+\. (.+?)\.?")


def round_trip(
    calls: Sequence[Call[Any]], where: str, brought: set[str] | None = None, *, apart: bool = False
) -> Generator[list[Command], list[Any], list[Any]]:
    """Yield commands, be sent their replies, return the decoded answers. One round trip unless a script is unknown.

    Redis forgets scripts when it restarts or on SCRIPT FLUSH: only the calls whose script it does not know are
    repeated, which is safe because an unknown script has done nothing. The first of each brings the source along, the
    others rely on it; should another SCRIPT FLUSH or a new connection come in between, each brings its own.

    `brought` holds the shas whose source others are sending ahead of these calls, and gains those sent here. `apart`:
    it is a node of a Cluster, whose slots may be under migration.
    """
    brought = set() if brought is None else brought
    calls = [_whole(call) for call in calls] if apart else calls
    replies = yield [_by_sha(call) for call in calls]
    unknown = _unknown(replies)
    if unknown:
        again = []
        for at in unknown:
            known = calls[at].script.sha in brought
            again.append(_by_sha(calls[at]) if known else _with_source(calls[at]))
            brought.add(calls[at].script.sha)
        _put(replies, unknown, (yield again))
        unknown = _unknown(replies)
    if unknown:
        _put(replies, unknown, (yield [_with_source(calls[at]) for at in unknown]))
    return [_decoded(call, reply, where) for call, reply in zip(calls, replies, strict=True)]


def _whole(call: Call[Any]) -> Call[Any]:
    """Have it name one key more: see Keys.nothing."""
    many, *rest = call.arguments
    keys, arguments = rest[: int(many)], rest[int(many) :]
    return replace(call, arguments=[int(many) + 1, *keys, call.keys.nothing, *arguments])


def _by_sha(call: Call[Any]) -> Command:
    return ("EVALSHA", call.script.sha, *call.arguments)


def _with_source(call: Call[Any]) -> Command:
    return ("EVAL", call.script.source, *call.arguments)


def _unknown(replies: Sequence[object]) -> list[int]:
    return [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]


def done(replies: Sequence[object]) -> bool:
    """Whether what went behind these commands has something to confirm: each step may be another server's."""
    return len(_unknown(replies)) < len(replies) or not replies


def _put(replies: list[Any], positions: list[int], again: list[Any]) -> None:
    for at, reply in zip(positions, again, strict=True):
        replies[at] = reply


def _decoded(call: Call[Any], reply: object, where: str) -> object:
    """Return the answer or, as a value, the error: one refused call must not hide what became of the others."""
    if isinstance(reply, RedisError):
        return translated(reply, where, call.script.name)
    try:
        return call.decode(reply)
    except DelayQError as error:
        return error  # the answer is to ask elsewhere
    except Exception as error:  # noqa: BLE001 -- must not hide the other answers either
        return DelayQError(
            f"Redis at {where} answered {call.script.name} with what cannot be read: {error!r:.200}"
        )


def packed(commands: Sequence[Command]) -> bytes:
    """Return commands as they go over the wire. hiredis does in C what redis-py would do piece by piece."""
    return b"".join([pack_command(command) for command in commands])


def translated(error: Exception, where: str, verb: str) -> DelayQError:
    """From redis-py's exceptions to ours; the message names the verb and never an argument."""
    text = reply_text(error)
    passing = _PASSING.search(text)
    if passing:
        text = text[passing.start() :].partition(". script:")[0]
        cause = outage.of_reply(text)
        # Which of its words we heard last, for a slot that does not arrive in time, is chance.
        text = f"the slot of this shard is moving: {text}" if cause == "migrating" else text
        return Unavailable(where, text, answered=True, outage=cause)
    if newer := _NEWER_FORMAT.search(text):
        return FormatTooNew(f"Redis at {where} refused {verb}", found=int(newer[1]), known=int(newer[2]))
    if isinstance(error, ResponseError):
        return DelayQError(f"Redis at {where} refused {verb}: {text}")
    if isinstance(error, OSError):
        text = error.strerror or ""
    if isinstance(error, OSError) or _CONNECTING.fullmatch(text):
        text = reason(text)
    return Unavailable(where, text or type(error).__name__, outage=outage.of_error(error))


def not_master(reply: object) -> bool:
    """Whether a reply says that this server is not the master, or has yet to load its data."""
    return isinstance(reply, ResponseError) and _NOT_MASTER.search(reply_text(reply)) is not None


def reason(text: str) -> str:
    """Return why a connection failed without what redis-py says around it: `connection refused`."""
    found = _CONNECTING.fullmatch(text)
    text = found[1] if found else text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def reply_text(error: Exception) -> str:
    """Return an error reply as Redis sent it, but for what it quotes: it may be the password of an AUTH.

    redis-py takes the code off those it has a class for. Of any other error, what it says.
    """
    said = str(error).partition("\n")[0].partition(_QUOTING)[0]
    code, text = getattr(error, "status_code", None), said[:200]
    return text if code in (None, "ERR") or text.startswith(code) else f"{code} {text}"


def shown(error: Exception) -> Exception | None:
    """Return an error as the cause of ours, for traces; None when it quotes what may be a password."""
    return None if _QUOTING in str(error) else error


def raise_first(answers: list[Any]) -> list[Any]:
    """Return the answers, or raise the first that is an error."""
    for answer in answers:
        if isinstance(answer, DelayQError):
            raise answer
    return answers


def confirmation(
    commands: Sequence[Command], replies: Sequence[object], where: str
) -> list[Any] | DelayQError:
    """Return the replies to what was sent behind calls, or the first error as a value.

    The first, for none of them means anything when one before it failed.
    """
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, RedisError):
            return translated(reply, where, str(command[0]))
    return list(replies)


def each_answered(answers: list[Any], confirmations: Sequence[list[Any] | DelayQError]) -> list[Any]:
    """Return the answers, errors as values, and last the worst of what was replied to what was behind them."""
    return [*answers, worst(confirmations)] if confirmations else answers


def answered(answers: list[Any], confirmations: Sequence[list[Any] | DelayQError]) -> list[Any]:
    """Return the answers, and last the worst of what the servers that have them replied to what was behind.

    Where there are no answers, what each of them replied: an error is raised then, for it would hide nothing that was
    done.
    """
    if not confirmations:
        return raise_first(answers)
    return [*raise_first(answers), worst(confirmations)] if answers else raise_first(list(confirmations))

"""What both kinds of connection do with calls, without waiting: a generator of commands to send and replies to read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError

from delayq.connection import outage
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.broker import Call

Command = tuple[Any, ...]
# What Redis answers while it cannot serve but may soon: waiting and trying again is right. The code is the reply's
# first word; before 7.0, Redis wraps what a script met: `Error running script (call to f_…): …: -OOM command …`.
_PASSING = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|BUSY|OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS"
    r"|WAIT(?:AOF)? cannot be used with replica)\b"
)

# What a server answers that is not, or not yet, the master: a new connection to the same address may find one.
_NOT_MASTER = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|READONLY|MASTERDOWN|WAIT(?:AOF)? cannot be used with replica)\b"
)

# redis-py: `Error 111 connecting to host:6379. Connection refused.` -- the host stands in our sentence already.
_CONNECTING = re.compile(r"Error -?\d+ connecting to \S+\. (.+?)\.?")


def round_trip(
    calls: Sequence[Call[Any]], where: str, brought: set[str] | None = None
) -> Generator[list[Command], list[Any], list[Any]]:
    """Yield commands, be sent their replies, return the decoded answers. One round trip unless a script is unknown.

    Redis forgets scripts when it restarts or on SCRIPT FLUSH: only the calls whose script it does not know are
    repeated, which is safe because an unknown script has done nothing. The first of each brings the source along, the
    others rely on it; should another SCRIPT FLUSH or a new connection come in between, each brings its own.

    `brought` holds the shas whose source others are sending ahead of these calls, and gains those sent here.
    """
    brought = set() if brought is None else brought
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


def _by_sha(call: Call[Any]) -> Command:
    return ("EVALSHA", call.script.sha, *call.arguments)


def _with_source(call: Call[Any]) -> Command:
    return ("EVAL", call.script.source, *call.arguments)


def _unknown(replies: list[Any]) -> list[int]:
    return [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]


def _put(replies: list[Any], positions: list[int], again: list[Any]) -> None:
    for at, reply in zip(positions, again, strict=True):
        replies[at] = reply


def _decoded(call: Call[Any], reply: object, where: str) -> object:
    """Return the answer or, as a value, the error: one refused call must not hide what became of the others."""
    if isinstance(reply, RedisError):
        return translated(reply, where, call.script.name)
    try:
        return call.decode(reply)
    except Exception as error:  # noqa: BLE001 -- must not hide the other answers either
        return DelayQError(
            f"Redis at {where} answered {call.script.name} with what cannot be read: {error!r:.200}"
        )


def packed(commands: Sequence[Command]) -> bytes:
    """Return commands as they go over the wire. hiredis does in C what redis-py would do piece by piece."""
    return b"".join([pack_command(command) for command in commands])


def translated(error: Exception, where: str, verb: str) -> DelayQError:
    """From redis-py's exceptions to ours; the message names the verb and never an argument."""
    text = _reply(error) if isinstance(error, ResponseError) else str(error).partition("\n")[0][:200]
    passing = _PASSING.search(text)
    if passing:
        text = text[passing.start() :].partition(". script:")[0]
        return Unavailable(where, text, answered=True, outage=outage.of_reply(text))
    if isinstance(error, ResponseError):
        return DelayQError(f"Redis at {where} refused {verb}: {text}")
    if isinstance(error, OSError):
        text = error.strerror or ""
    if isinstance(error, OSError) or _CONNECTING.fullmatch(text):
        text = reason(text)
    return Unavailable(where, text or type(error).__name__, outage=outage.of_error(error))


def not_master(reply: object) -> bool:
    """Whether a reply says that this server is not the master, or has yet to load its data."""
    if isinstance(reply, BusyLoadingError):
        return True
    return isinstance(reply, ResponseError) and _NOT_MASTER.search(_reply(reply)) is not None


def reason(text: str) -> str:
    """Return why a connection failed without what redis-py says around it: `connection refused`."""
    found = _CONNECTING.fullmatch(text)
    text = found[1] if found else text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _reply(error: ResponseError) -> str:
    """Return an error reply as Redis sent it: redis-py takes the code off those it has a class for."""
    code, text = getattr(error, "status_code", None), str(error).partition("\n")[0][:200]
    return text if code in (None, "ERR") or text.startswith(code) else f"{code} {text}"


def raise_first(answers: list[Any]) -> list[Any]:
    """Return the answers, or raise the first that is an error."""
    for answer in answers:
        if isinstance(answer, DelayQError):
            raise answer
    return answers


def answered(
    answers: list[Any], replies: Sequence[object], where: str, behind: Sequence[Command]
) -> list[Any]:
    """Return the answers, and last what became of the commands `behind`: their replies, or the first error as a value.

    The first, for none of them means anything when one before it failed. Where there are no answers it is raised, as
    every other error is: it would hide nothing that was done.
    """
    if not behind:
        return raise_first(answers)
    errors = [
        translated(reply, where, str(command[0]))
        for command, reply in zip(behind, replies, strict=True)
        if isinstance(reply, RedisError)
    ]
    last = errors[0] if errors else list(replies)
    return [*raise_first(answers), last] if answers else raise_first([last])

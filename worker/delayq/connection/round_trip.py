"""Runs calls without I/O: a generator that yields commands and receives replies. Both kinds of connection use it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hiredis import pack_command
from redis.exceptions import NoScriptError, RedisError, ResponseError

from delayq.connection import outages
from delayq.errors import DelayQError, Unavailable, UnsupportedFormat
from delayq.protocol.keys import FORMAT
from delayq.protocol.write_durability import worst

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from delayq.protocol.commands import Call

Command = tuple[Any, ...]
MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What decoding raises when a reply is not what was expected. Other exceptions are those of signal handlers."""
CLOSED: Final = "connection closed: this client was closed; open it again"
"""Why a call failed: close() ran before or during the call. The client's open() connects again."""
# Errors of a server that may serve again soon: a retry is right. The code is the first word of the reply. Before 7.0,
# Redis wraps the error of a script: `Error running script (call to f_…): …: -OOM command …`.
_TRANSIENT = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|BUSY|OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS"
    r"|MOVED(?= \d)|ASK(?= \d)|WAIT(?:AOF)? cannot be used with replica)\b"
    r"|\b[Ss]cript attempted to access a non local key"
)

# Replies of a server that is not, or not yet, the master: a new connection to the same address may reach the master.
_NOT_MASTER = re.compile(
    r"(?:^|(?<=: -))(?:LOADING|READONLY|MASTERDOWN|WAIT(?:AOF)? cannot be used with replica)\b"
)

# Redis wraps it in text of its own.
_UNSUPPORTED_FORMAT = re.compile(r"\bUNSUPPORTEDFORMAT (\d+)")

_QUOTING = ", with args beginning with"  # Redis quotes the arguments of an unknown command, which may be AUTH

# redis-py: `Error 111 connecting to host:6379. Connection refused.` -- our message already has the host.
_CONNECTING = re.compile(r"Error -?\d+ connecting to \S+\. (.+?)\.?")


def round_trip(
    calls: Sequence[Call[Any]], where: str, loading: set[str] | None = None, *, is_cluster: bool = False
) -> Generator[list[Command], list[Any], list[Any]]:
    """Yield commands, receive their replies, return the decoded results. One round trip, unless a script is unknown.

    Redis loses scripts at a restart and on SCRIPT FLUSH. Only calls with an unknown script are repeated, which is safe
    because an unknown script has not run. The first call of each script carries its source, the others rely on it.
    After another SCRIPT FLUSH or a new connection in between, each call carries the source.

    `loading` has the hashes of scripts whose source other callers are sending before these calls; those sent here are
    added. `is_cluster`: the server is a node of a Cluster, whose slots may be migrating.
    """
    loading = set() if loading is None else loading
    calls = [_whole(call) for call in calls] if is_cluster else calls
    replies = yield [_by_sha(call) for call in calls]
    unknown = _unknown(replies)
    if unknown:
        again = []
        for at in unknown:
            known = calls[at].script.sha in loading
            again.append(_by_sha(calls[at]) if known else _with_source(calls[at]))
            loading.add(calls[at].script.sha)
        _put(replies, unknown, (yield again))
        unknown = _unknown(replies)
    if unknown:
        _put(replies, unknown, (yield [_with_source(calls[at]) for at in unknown]))
    return [_decoded(call, reply, where) for call, reply in zip(calls, replies, strict=True)]


def _whole(call: Call[Any]) -> Call[Any]:
    """Add a key that never exists, see Keys.nothing."""
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
    """Whether the server executed a command, so that its confirmation counts."""
    return len(_unknown(replies)) < len(replies) or not replies


def _put(replies: list[Any], positions: list[int], again: list[Any]) -> None:
    for at, reply in zip(positions, again, strict=True):
        replies[at] = reply


def _decoded(call: Call[Any], reply: object, where: str) -> object:
    """Return the decoded reply, or the error as a value: one failed call must not hide the results of the others."""
    if isinstance(reply, RedisError):
        if other := _UNSUPPORTED_FORMAT.search(str(reply)):
            return UnsupportedFormat(call.keys.queue, call.keys.shard, found=int(other[1]), known=FORMAT)
        return translated(reply, where, call.script.name)
    try:
        return call.decode(reply)
    except DelayQError as error:
        return error  # for example ShardMapOutdated: the caller must retry elsewhere
    except MALFORMED as error:  # must not hide the other results
        return DelayQError(f"Redis at {where} sent a malformed reply to {call.script.name}: {error!r:.200}")


def packed(commands: Sequence[Command]) -> bytes:
    """Encode commands for the wire. hiredis is faster than redis-py, which encodes each part separately.

    It gets no numbers: it reads their repr(), where Python calls signal handlers, and crashes if one raises.
    """
    return b"".join([pack_command(_without_numbers(command)) for command in commands])


def _without_numbers(command: Command) -> Any:  # noqa: ANN401 -- the stub of hiredis takes tuples of one part
    return tuple([part if isinstance(part, bytes) else f"{part}" for part in command])


def translated(error: Exception, where: str, verb: str) -> DelayQError:
    """Translate redis-py's exceptions to ours. The message names the verb and never an argument."""
    text = reply_text(error)
    transient = _TRANSIENT.search(text)
    if transient:
        text = text[transient.start() :].partition(". script:")[0]
        cause = outages.of_reply(text)
        # The last error of a slot that does not arrive in time may be any of these codes.
        text = f"the slot of this shard is moving: {text}" if cause == "migrating" else text
        return Unavailable(where, text, answered=True, outage=cause)
    if isinstance(error, ResponseError):
        refusal = DelayQError(f"Redis at {where} refused {verb}: {text}")
        refusal.outage = outages.of_reply(text)
        return refusal
    if isinstance(error, OSError):
        text = error.strerror or ""
    if isinstance(error, OSError) or _CONNECTING.fullmatch(text):
        text = reason(text)
    return Unavailable(where, text or type(error).__name__, outage=outages.of_failure(error))


def not_master(reply: object) -> bool:
    """Whether a reply means that the server is not the master, or still loads its data."""
    return isinstance(reply, ResponseError) and _NOT_MASTER.search(reply_text(reply)) is not None


def reason(text: str) -> str:
    """Return the cause of a failed connection without the text that redis-py adds: `connection refused`."""
    found = _CONNECTING.fullmatch(text)
    text = found[1] if found else text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def reply_text(error: Exception) -> str:
    """Return an error reply as Redis sent it, without quoted arguments, which may be the password of an AUTH.

    redis-py removes the code of errors for which it has a class. For other exceptions, return their message.
    """
    message = str(error).partition("\n")[0].partition(_QUOTING)[0]
    code, text = getattr(error, "status_code", None), message[:200]
    return text if code in (None, "ERR") or text.startswith(code) else f"{code} {text}"


def shown(error: Exception) -> Exception | None:
    """Return an error to chain as the cause of ours; None when it may quote a password."""
    return None if _QUOTING in str(error) else error


def raise_first(answers: list[Any]) -> list[Any]:
    """Return the results, or raise the first error."""
    for answer in answers:
        if isinstance(answer, DelayQError):
            raise answer
    return answers


def confirmation(
    commands: Sequence[Command], replies: Sequence[object], where: str
) -> list[Any] | DelayQError:
    """Return the replies to a confirmation, or the first error as a value.

    After an error, the later replies have no meaning.
    """
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, RedisError):
            return translated(reply, where, str(command[0]))
    return list(replies)


def each_answered(answers: list[Any], confirmations: Sequence[list[Any] | DelayQError]) -> list[Any]:
    """Return the results, with errors as values; last, the worst confirmation."""
    return [*answers, worst(confirmations)] if confirmations else answers


def answered(answers: list[Any], confirmations: Sequence[list[Any] | DelayQError]) -> list[Any]:
    """Return the results; last, the worst confirmation of the servers that have executed calls.

    Without calls, return the confirmation of each server, and raise an error, as it hides no result.
    """
    if not confirmations:
        return raise_first(answers)
    return [*raise_first(answers), worst(confirmations)] if answers else raise_first(list(confirmations))

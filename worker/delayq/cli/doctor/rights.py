"""Check whether the user may run the scripts on every server, and name the commands that it may not use."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.doctor.findings import Finding, cures, failed, ok
from delayq.cli.formats import tasks
from delayq.connection import DENIED
from delayq.contract import acl
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection import SyncConnection
    from delayq.contract.durability import DurabilitySpec
    from delayq.protocol.commands import Commands
    from delayq.protocol.keys import Keys

OUTSIDE = ("blpop", "eval", "evalsha", "get", "ping", "time")  # commands that processes send
CONFIRMING = {"None": (), "Replicated": ("wait",), "Fsynced": ("waitaof", "config|get")}  # more, for clients
_NAMED = re.compile(r"'([\w|]+)' command")  # of an error reply
LUA = "is that a Redis with Lua?"
UNASKED = "the right to each command was not checked: that needs Redis 7.0"


def run_scripts(
    connection: SyncConnection, commands: Commands, asked: DurabilitySpec, served: Sequence[int]
) -> Finding:
    """Run `wake` and `counts` on every available shard. They change only a wake token.

    Raises Unavailable when Redis does not answer.
    """
    held = [commands.keys(shard) for shard in served]
    calls: list[Any] = [call(shard) for call in (commands.wake, commands.counts) for shard in served]
    try:
        connection.run(calls)
    except DelayQError as error:
        return _refused(connection, held, error)
    lacking = denied(connection, held, CONFIRMING[asked.confirm])
    if lacking:
        return failed("scripts", f"the user may not use {', '.join(lacking)}", _allow(lacking))
    unasked = f"; {UNASKED}" if lacking is None else ""
    return ok("scripts", f"load and run on {len(held)} of {tasks(len(commands.shards), 'shard')}{unasked}")


def _refused(connection: SyncConnection, held: Sequence[Keys], error: DelayQError) -> Finding:
    why = str(error)
    if isinstance(error, Unavailable):
        if not error.answered:
            raise error
        return failed("scripts", why, cures(error))
    if error.outage != "denied":
        return failed("scripts", why, LUA)
    if "keys" in why:
        keys = held[0]
        return failed("scripts", why, f"ACL SETUSER … ~{keys.prefix}:{{{keys.queue}:*")
    lacking = denied(connection, held) or _NAMED.findall(why)
    named = f": the user may not use {', '.join(lacking)}" if lacking else ""
    return failed("scripts", f"{why}{named}", _allow(lacking or needed()))


def _allow(commands: Sequence[str]) -> str:
    return f"ACL SETUSER … {' '.join(f'+{name}' for name in commands)}, and the queue's keys"


def needed(*, is_cluster: bool = False) -> list[str]:
    """Return the commands that every process needs. INFO and CONFIG GET are optional."""
    return sorted({*acl.SCRIPTS, *OUTSIDE, *(acl.CLUSTER if is_cluster else ())})


def denied(connection: SyncConnection, shards: Sequence[Keys], more: Sequence[str] = ()) -> list[str] | None:
    """Return the commands that the user may not use on some server; None if unknown."""
    commands, found, unasked = [*needed(is_cluster=connection.address.is_cluster), *more], set[str](), False
    for _, held in connection.servers(shards):
        # acl_check_cmd checks the command and its keys, but not the number of arguments.
        key = held[0].delayed
        asked = json.dumps([[*name.split("|"), key, key] for name in commands])
        [answer] = connection.send([("EVAL", _MAY, "1", key, asked)], held[0])
        if isinstance(answer, list):
            found |= {name for name, allowed in zip(commands, answer, strict=True) if not allowed}
        elif DENIED.search(str(answer)):
            found.add("eval")
        else:
            unasked = True
    return None if unasked and not found else sorted(found)


_MAY: Final = """
local allowed = {}
for at, call in ipairs(cjson.decode(ARGV[1])) do
  local known, may = pcall(redis.acl_check_cmd, unpack(call))
  allowed[at] = (not known or may) and 1 or 0
end
return redis.acl_check_cmd and allowed or redis.error_reply('ERR before 7.0')
"""
"""Checks the commands without running them; needs only the right to EVAL."""

"""Whether the scripts may run, and if not, which commands the user lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from delayq import scripts
from delayq.cli.doctor.findings import Finding, failed, ok
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.broker import Broker
    from delayq.connection import SyncConnection
    from delayq.contract import Delivery

OUTSIDE = ("ping", "time", "blpop")  # what processes send beside scripts
CONFIRMING = {"None": (), "Replicated": ("wait",), "Fsynced": ("waitaof", "config|get")}  # clients send, too
_CALLED = re.compile(r"redis\.call\('(\w+)'|each_slice\('(\w+)'")
_DENIED = re.compile(r"NOPERM|can't run this command|no permissions", re.IGNORECASE)


def run_scripts(connection: SyncConnection, broker: Broker, delivery: Delivery) -> Finding:
    """Run `wake` and `counts` on every shard, which change nothing but a hint, and forget nothing."""
    shards = range(len(broker.shards))
    calls: list[Any] = [broker.wake(shard) for shard in shards] + [broker.counts(shard) for shard in shards]
    try:
        connection.run(calls)
    except DelayQError as error:
        return _refused(connection, broker, str(error))
    lacking = denied(connection, broker, CONFIRMING[delivery.acknowledge])
    if lacking:
        return failed("scripts", f"the user may not use {', '.join(lacking)}", _allow(lacking))
    return ok("scripts", f"load and run on {len(broker.shards)} of {len(broker.shards)} shards")


def _refused(connection: SyncConnection, broker: Broker, why: str) -> Finding:
    if not _DENIED.search(why):
        return failed("scripts", why, "is that a Redis with Lua, and not busy with somebody else's script?")
    if "keys" in why:
        keys = broker.shards[0]
        return failed("scripts", why, f"ACL SETUSER … ~{keys.prefix}:{{{keys.queue}:*")
    lacking = denied(connection, broker)
    named = f": the user may not use {', '.join(lacking)}" if lacking else ""
    return failed("scripts", f"{why}{named}", _allow(lacking or needed()))


def _allow(commands: Sequence[str]) -> str:
    return f"ACL SETUSER … {' '.join(f'+{name}' for name in commands)}, and the queue's keys"


def needed() -> list[str]:
    """Return every command that delayq uses, from the scripts themselves."""
    called = {
        name
        for verb in scripts.names()
        for pair in _CALLED.findall(scripts.load(verb).source)
        for name in pair
    }
    scanned = {"zscan", "hscan"}  # named by an argument of reconcile.lua
    return sorted({name.lower() for name in called if name} | scanned | set(OUTSIDE) | {"evalsha", "eval"})


def denied(connection: SyncConnection, broker: Broker, more: Sequence[str] = ()) -> list[str]:
    """Ask Redis 7 or newer which of them the user may not use; nothing when it cannot be asked."""
    [user] = connection.send([("ACL", "WHOAMI")])
    if not isinstance(user, bytes):
        return []
    commands = [*needed(), *more]
    key = broker.shards[0].delayed
    tried = [("ACL", "DRYRUN", user, *_example(name, key)) for name in commands]
    answers = connection.send(tried)
    return [
        name
        for name, answer in zip(commands, answers, strict=True)
        if isinstance(answer, bytes) and answer != b"OK"
    ]


def _example(name: str, key: str) -> tuple[str, ...]:
    """Return a call with as many words as the command takes; it is never run."""
    if name in ("evalsha", "eval"):
        return name, "return 1", "1", key
    if name in ("ping", "time"):
        return (name,)
    if name in _PLAIN:
        return _PLAIN[name]
    return name, key, *["1"] * _MORE.get(name, 0)


_PLAIN = {
    "wait": ("wait", "1", "1"),
    "waitaof": ("waitaof", "1", "0", "1"),
    "config|get": ("config", "get", "appendfsync"),
}
_ONE = (
    "blpop",
    "hdel",
    "hexists",
    "hget",
    "hmget",
    "hscan",
    "hstrlen",
    "lpush",
    "pexpire",
    "set",
    "zrem",
    "zscan",
    "zscore",
)
_TWO = ("hincrby", "hset", "hsetnx", "zadd", "zcount", "zrange", "zrangebyscore", "zremrangebyrank")
_MORE = dict.fromkeys(_ONE, 1) | dict.fromkeys((*_TWO, "zrevrangebyscore"), 2)  # words after the key

"""The permissions of delayq's Redis user, as a rule for `ACL SETUSER`. Tests run with exactly this rule.

A contract test compares SCRIPTS with the commands that the scripts call.
"""

from __future__ import annotations

from typing import Final

_CALLED: Final = """
    del exists get hdel hexists hget hgetall hincrby hlen hmget hscan hset hsetnx hstrlen info llen
    lpush pexpire pttl set time unlink zadd zcard zcount zrange zlexcount zrangebylex zrangebyscore
    zrem zremrangebyrank zrevrangebyscore zscan zscore
"""
SCRIPTS: Final = tuple(_CALLED.split())
"""Commands that scripts call: the user needs permission for each."""

CONNECTION: Final = ("blpop", "eval", "evalsha", "ping", "role", "select", "wait")
"""Commands that connections send. HELLO and AUTH need no permission."""

CLUSTER: Final = ("asking", "cluster|info", "cluster|slots")
"""Further commands for a Cluster."""

YOUNGER: Final = ("waitaof",)
"""Commands since Redis 7.2, for `durability.confirm: Fsynced`. Older versions reject a rule with them."""
YOUNGER_SINCE: Final = (7, 2)

CURIOUS: Final = ("command|info",)
"""Command to detect WAITAOF. It is optional."""

REVEALING: Final = ("config|get",)
"""Reads the fsync policy of Redis, but also all other settings, with `requirepass` and `masterauth` in clear text.
Redis cannot permit single settings. Only `durability.confirm: Fsynced` needs it."""

SENTINEL: Final = ("ping", "sentinel|get-master-addr-by-name", "sentinel|master")
"""Commands for the Sentinels' own user."""


def rule(
    key_prefix: str = "delayq",
    *,
    queue: str | None = None,
    config_get: bool = False,
    redis: tuple[int, ...] = YOUNGER_SINCE,
) -> str:
    """Return the rule for a Redis of that version, without name and password: `ACL SETUSER delayq on >… <rule>`.

    With a `queue`, it opens the keys of that queue alone: `{orders:*` matches orders:3, and not orders2:0. Without one,
    those of every queue under the prefix.
    """
    younger = YOUNGER if redis >= YOUNGER_SINCE else ()
    revealing = REVEALING if config_get else ()
    allowed = sorted({*SCRIPTS, *CONNECTION, *CLUSTER, *CURIOUS, *revealing, *younger})
    keys = f"{key_prefix}:*" if queue is None else f"{key_prefix}:{{{queue}:*"
    return _written(f"resetkeys ~{keys} resetchannels -@all", allowed)


def sentinel_rule() -> str:
    """Return the rule for Sentinels of any version: no key, no channel."""
    return _written("resetkeys resetchannels -@all", sorted(SENTINEL))


def _written(start: str, allowed: list[str]) -> str:
    return " ".join([start, *(f"+{name}" for name in allowed)])

"""What delayq's Redis user may do, and nothing more: the rule for `ACL SETUSER`. Tests run under exactly this.

Not here: who asks for what. A contract test compares SCRIPTS with what the scripts call.
"""

from __future__ import annotations

from typing import Final

SCRIPTS: Final = (
    *(
        "del",
        "exists",
        "get",
        "hdel",
        "hexists",
        "hget",
        "hgetall",
        "hincrby",
        "hlen",
        "hmget",
        "hscan",
        "hset",
        "hsetnx",
    ),
    *(
        "hstrlen",
        "info",
        "llen",
        "lpush",
        "pexpire",
        "pttl",
        "set",
        "time",
        "unlink",
        "zadd",
        "zcard",
        "zcount",
        "zrange",
    ),
    *("zrangebyscore", "zrem", "zremrangebyrank", "zrevrangebyscore", "zscan", "zscore"),
)
"""What scripts call: their user needs each of these, as if it had sent it."""

CONNECTION: Final = ("blpop", "eval", "evalsha", "ping", "role", "select", "wait")
"""What connections send. HELLO and AUTH take no right."""

CLUSTER: Final = ("asking", "cluster|info", "cluster|slots")
"""Further commands for a Cluster."""

YOUNGER: Final = ("waitaof",)
"""What came with Redis 7.2, for `durability.confirm: Fsynced`: older ones refuse a rule with it."""
YOUNGER_SINCE: Final = (7, 2)

CURIOUS: Final = ("command|info",)
"""Command to detect WAITAOF. It is optional."""

REVEALING: Final = ("config|get",)
"""What tells how often Redis forces its file to the disk, and with it every other setting: also `requirepass` and
`masterauth`, in clear. Redis cannot allow single settings. Only `durability.confirm: Fsynced` takes it."""

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

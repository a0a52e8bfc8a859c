"""Durability risks of Redis, from the replies of INFO and CONFIG GET. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delayq.contract.durability import DurabilitySpec
    from delayq.contract.metrics import DurabilityRisk

SETTINGS: Final = ("appendfsync", "no-appendfsync-on-rewrite", "save", "stop-writes-on-bgsave-error")
QUESTIONS: Final = (
    ("INFO",),
    ("COMMAND", "INFO", "waitaof"),
    *(("CONFIG", "GET", name) for name in SETTINGS),  # one by one: several in one came with Redis 7
)
"""Read-only and O(1) in the number of tasks; an ACL may deny any of them."""

LAGGING_SECONDS: Final = 10
"""A replica with a greater lag does not count: the default of Redis' min-replicas-max-lag."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's INFO and settings. `waitaof`: whether it supports that command; None: unknown."""

    facts: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    waitaof: bool | None = None

    @property
    def replicas(self) -> int:
        """The number of replicas that are online with a small lag."""
        lines = [line for name, line in self.facts.items() if re.fullmatch(r"slave\d+", name)]
        return sum(_keeps_up(dict(re.findall(r"(\w+)=([^,]*)", line))) for line in lines)

    @property
    def saves(self) -> bool:
        """Whether it writes snapshots periodically; if unknown, yes, which is Redis' default."""
        return self.settings.get("save", "3600 1") != ""


def _keeps_up(replica: Mapping[str, str]) -> bool:
    lag = replica.get("lag", "0")
    return replica.get("state") == "online" and lag.isdigit() and int(lag) <= LAGGING_SECONDS


def server_info(replies: Sequence[object]) -> ServerInfo:
    """Parse the replies to QUESTIONS; denied commands leave no facts."""
    about, command, *settings = replies
    values = {name: setting(reply) for name, reply in zip(SETTINGS, settings, strict=True)}
    waitaof = command[:1] != [None] and command != [] if isinstance(command, list) else None
    return ServerInfo(
        info(about), {name: value for name, value in values.items() if value is not None}, waitaof
    )


def info(reply: object) -> dict[str, str]:
    """Parse the reply of INFO; empty when it was denied."""
    if not isinstance(reply, bytes):
        return {}
    return dict(re.findall(r"^(\w+):(.*?)\r?$", reply.decode(errors="replace"), re.MULTILINE))


def setting(reply: object) -> str | None:
    """Return the value in a reply of CONFIG GET; None when it was denied, as by many hosted services."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else None


def clock_offset_seconds(reply: object, before: float, after: float) -> float | None:
    """Return Redis' clock minus the local one, from TIME and the local time before and after; None if denied.

    The reply counts as the middle of the round trip, so the error is at most half of it.
    """
    if not isinstance(reply, list):
        return None
    seconds, micros = map(int, reply)
    return seconds + micros / 1e6 - (before + after) / 2


def risks(server: ServerInfo, asked: DurabilitySpec) -> frozenset[DurabilityRisk]:
    """Return all ways in which Redis may lose an accepted task; `unknown`, `fsync_unknown` if commands are denied."""
    if not server.facts:
        return frozenset({"unknown"})
    return frozenset((*_memory(server), *_files(server), *_durability(server, asked)))


def _memory(server: ServerInfo) -> Iterator[DurabilityRisk]:
    # allkeys-… may evict tasks; volatile-… may evict locks and `leader`, so that two processes hold one.
    if server.facts.get("maxmemory_policy", "noeviction") != "noeviction":
        yield "evicts"


def _files(server: ServerInfo) -> Iterator[DurabilityRisk]:
    logs = server.facts.get("aof_enabled") == "1"
    # With a log, a failed snapshot loses nothing; but by default Redis then rejects writes.
    refuses = server.saves and server.settings.get("stop-writes-on-bgsave-error", "yes") == "yes"
    if server.facts.get("rdb_last_bgsave_status", "ok") != "ok" and (refuses or not logs):
        yield "saves_failing"
    if not logs:
        yield "append_only_off"
        return
    if server.facts.get("aof_last_write_status", "ok") != "ok":
        yield "append_only_failing"
    if server.facts.get("aof_last_bgrewrite_status", "ok") != "ok":
        yield "rewrite_failing"
    appendfsync = server.settings.get("appendfsync")
    if appendfsync == "no":
        yield "fsync_off"
    elif server.settings.get("no-appendfsync-on-rewrite") == "yes":
        yield "fsync_paused"
    if appendfsync is None:
        yield "fsync_unknown"


def _durability(server: ServerInfo, asked: DurabilitySpec) -> Iterator[DurabilityRisk]:
    """Yield risks that make every `schedule` fail, or its confirmation worthless."""
    if asked.confirm == "Replicated" and server.replicas < asked.replicas:
        yield "replicas_missing"
    if asked.confirm == "Fsynced" and not _confirms_fsync(server):
        yield "fsync_unconfirmed"


def _confirms_fsync(server: ServerInfo) -> bool:
    """Whether WAITAOF waits for a sync. Whether it replies before that shows only in a test: durability_check.py."""
    syncs = server.settings.get("appendfsync") != "no" and server.facts.get("aof_enabled") == "1"
    return syncs and server.waitaof is not False

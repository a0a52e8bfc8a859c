"""Whether Redis keeps what it is given: from the answers of INFO and CONFIG to the risks. No I/O."""

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
"""Read-only, and constant in the number of tasks; a user may lack the right to any."""

LAGGING_SECONDS: Final = 10
"""A replica not heard of for longer does not count: Redis' own min-replicas-max-lag."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What Redis told of itself. `waitaof`: whether it knows that command; None when it would not say."""

    facts: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    waitaof: bool | None = None

    @property
    def replicas(self) -> int:
        """How many replicas have been heard of lately, with all data there was when they connected."""
        lines = [line for name, line in self.facts.items() if re.fullmatch(r"slave\d+", name)]
        return sum(_keeps_up(dict(re.findall(r"(\w+)=([^,]*)", line))) for line in lines)

    @property
    def saves(self) -> bool:
        """Whether it writes snapshots by itself. One that will not say is taken to: that is the default."""
        return self.settings.get("save", "3600 1") != ""


def _keeps_up(replica: Mapping[str, str]) -> bool:
    lag = replica.get("lag", "0")
    return replica.get("state") == "online" and lag.isdigit() and int(lag) <= LAGGING_SECONDS


def server_info(replies: Sequence[object]) -> ServerInfo:
    """Read the replies to QUESTIONS; what was refused is not there."""
    about, command, *settings = replies
    values = {name: setting(reply) for name, reply in zip(SETTINGS, settings, strict=True)}
    waitaof = command[:1] != [None] and command != [] if isinstance(command, list) else None
    return ServerInfo(
        info(about), {name: value for name, value in values.items() if value is not None}, waitaof
    )


def info(reply: object) -> dict[str, str]:
    """Return what INFO says; nothing when it was refused."""
    if not isinstance(reply, bytes):
        return {}
    return dict(re.findall(r"^(\w+):(.*?)\r?$", reply.decode(errors="replace"), re.MULTILINE))


def setting(reply: object) -> str | None:
    """Return the value CONFIG GET answers with; None when it was refused, as in many a hosted Redis."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else None


def clock_offset_seconds(reply: object, before: float, after: float) -> float | None:
    """Return Redis' clock minus ours, from TIME and our clock on both sides of it; None when TIME was refused.

    The reply stands for the middle, so that it is off by half the round trip at most.
    """
    if not isinstance(reply, list):
        return None
    seconds, micros = map(int, reply)
    return seconds + micros / 1e6 - (before + after) / 2


def risks(server: ServerInfo, asked: DurabilitySpec) -> frozenset[DurabilityRisk]:
    """Return every way in which an accepted task may be lost; `unknown`, `fsync_unknown` where Redis does not tell."""
    if not server.facts:
        return frozenset({"unknown"})
    return frozenset((*_memory(server), *_files(server), *_durability(server, asked)))


def _memory(server: ServerInfo) -> Iterator[DurabilityRisk]:
    # allkeys-… may take tasks; volatile-… what expires, of ours locks and `leader`: then there are two holders.
    if server.facts.get("maxmemory_policy", "noeviction") != "noeviction":
        yield "evicts"


def _files(server: ServerInfo) -> Iterator[DurabilityRisk]:
    logs = server.facts.get("aof_enabled") == "1"
    # With a log, a snapshot that fails loses nothing by itself; but Redis takes no writes then, unless told otherwise.
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
    """Name what makes every `schedule` fail, or what it waits for worthless."""
    if asked.confirm == "Replicated" and server.replicas < asked.replicas:
        yield "replicas_missing"
    if asked.confirm == "Fsynced" and not _confirms_fsync(server):
        yield "fsync_unconfirmed"


def _confirms_fsync(server: ServerInfo) -> bool:
    """Whether WAITAOF can be believed. Valkey's answers early between two syncs a second apart (9.1 does)."""
    appendfsync = server.settings.get("appendfsync", "everysec")
    early = appendfsync == "everysec" and "valkey_version" in server.facts
    return (
        server.waitaof is not False
        and server.facts.get("aof_enabled") == "1"
        and appendfsync != "no"
        and not early
    )

"""Check version, role, persistence, eviction and memory of a server, from INFO, which needs few rights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delayq.cli.doctor.findings import Finding, Level, failed, ok, warning
from delayq.cli.formats import tasks
from delayq.client.blocking import SyncClient
from delayq.contract.durability import DurabilitySpec
from delayq.errors import DelayQError, Unavailable
from delayq.local.releases import CVE, FIXED, Release, numbers
from delayq.protocol.write_durability import durability_of
from delayq.scanner import durability

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.cli.target import Target
    from delayq.connection import SyncConnection
    from delayq.contract.metrics import DurabilityRisk
    from delayq.local.releases import Kind
    from delayq.scanner.durability import ServerInfo

OLDEST = (5, 0)
TESTED = (6, 2)
NEARLY_FULL = 0.8
PATIENT_MS = 3000  # two syncs of appendfsync everysec, and one second for a busy disk
UNTOLD = "not known: on the server, redis-cli CONFIG GET appendfsync should return everysec or always"
FSYNC = "appendonly yes, appendfsync always, and a Redis with WAITAOF (7.2, Valkey); or Replicated"
NEVER_LOST = "tasks can be lost when Redis restarts"


def server(connection: SyncConnection, asked: DurabilitySpec) -> Iterator[Finding]:
    """Check INFO and a few settings; `asked` is spec.durability."""
    info = durability.server_info(connection.send(durability.QUESTIONS))
    if not info.facts:
        yield warning("version", "not known: Redis refuses INFO", "allow the user INFO")
        return
    yield version(info.facts)
    yield from vulnerable_lua(info.facts)
    yield role(info)
    yield from persistence(info)
    if asked.confirm != "None":
        found = confirmed(info, asked)
        if (
            asked.confirm == "Replicated" or found.level is not Level.OK
        ):  # otherwise a test follows: fsynced()
            yield found
    yield eviction(info)
    yield memory(info.facts)


def version(facts: Mapping[str, str]) -> Finding:
    """Check the version. 5 is the oldest whose scripts can read the time and then write."""
    found = facts.get("redis_version", "")
    name = (
        f"Valkey {facts['valkey_version']}"
        if "valkey_version" in facts
        else f"Redis {found or 'of unknown version'}"
    )
    wanted = "delayq needs Redis {}.{} or newer, and is tested with {}.{} and newer".format(*OLDEST, *TESTED)
    number = re.match(r"(\d+)\.(\d+)", found)
    if number is None:
        return warning("version", name, wanted)
    numbers = int(number[1]), int(number[2])
    if numbers < OLDEST:
        return failed("version", name, wanted)
    return ok("version", name) if numbers >= TESTED else warning("version", name, wanted)


def role(info: ServerInfo) -> Finding:
    """Check that the server is a master: replicas refuse writes."""
    if info.facts.get("role") in ("slave", "replica"):
        master = f"{info.facts.get('master_host', '?')}:{info.facts.get('master_port', '?')}"
        return failed("role", f"a replica of {master}", "point spec.redis at the master")
    lagging = int(info.facts.get("connected_slaves", 0)) - info.replicas
    behind = f", and {lagging} lagging behind" if lagging > 0 else ""
    return ok("role", f"master, {tasks(info.replicas, 'replica')}{behind}")


def persistence(info: ServerInfo) -> Iterator[Finding]:
    """Report the risks to the append-only file, the most serious first: without it, a restart loses tasks."""
    found = durability.risks(info, DurabilitySpec())
    wrong = [finding for risk, finding in _PERSISTENCE.items() if risk in found]
    fsync = info.settings.get("appendfsync")
    said = f"append-only file on, appendfsync {fsync or UNTOLD}"
    yield from wrong or [ok("persistence", said)]


_PERSISTENCE: Final[Mapping[DurabilityRisk, Finding]] = {
    "append_only_off": warning("persistence", f"append-only file off: {NEVER_LOST}", "set appendonly yes"),
    "append_only_failing": failed(
        "persistence", "the append-only file could not be written", "is the disk full?"
    ),
    "saves_failing": failed(
        "persistence",
        "the last snapshot failed: Redis refuses tasks, or loses those since the previous snapshot when it restarts",
        'check its disk, memory (overcommit) and log; with an append-only file, set save ""',
    ),
    "fsync_off": warning(
        "persistence",
        f"appendfsync no: {NEVER_LOST} with its machine",
        "set appendfsync everysec, or always",
    ),
    "fsync_paused": warning(
        "persistence",
        "no-appendfsync-on-rewrite yes: tasks can be lost with the machine while the file is rewritten",
        "set no-appendfsync-on-rewrite no",
    ),
    "rewrite_failing": warning(
        "persistence",
        "the append-only file could not be rewritten: it grows until the disk is full",
        "check its disk, memory (overcommit) and log",
    ),
}


def confirmed(info: ServerInfo, asked: DurabilitySpec) -> Finding:
    """Check that Redis can confirm writes as spec.durability requires: otherwise every schedule fails."""
    found = durability.risks(info, asked)
    if "replicas_missing" in found:
        return failed(
            "durability",
            f"Replicated: {info.replicas} of {tasks(asked.replicas, 'replica')} keeping up, so every schedule fails",
            "repair the replicas, or lower durability.replicas",
        )
    if "fsync_unconfirmed" in found:
        return failed(
            "durability",
            "Fsynced: this Redis cannot confirm it, so every schedule fails",
            FSYNC,
        )
    said = f"{asked.confirm}, within {asked.timeout_milliseconds:,} ms"
    everysec = info.settings.get("appendfsync") == "everysec"
    if asked.confirm == "Fsynced" and everysec and asked.timeout_milliseconds < PATIENT_MS:
        return warning(
            "durability",
            f"{said}: with appendfsync everysec the disk often takes longer, and schedule fails",
            f"durability.timeoutMilliseconds {PATIENT_MS} or more, or appendfsync always",
        )
    return ok("durability", said)


def fsynced(target: Target) -> Finding:
    """Test whether Redis confirms that writes are on its disk, as a client does before its first write."""
    asked = target.durability
    try:
        with SyncClient(
            target.address,
            queue=target.queue,
            key_prefix=target.key_prefix,
            shards=target.shards,
            durability=durability_of(asked),
        ) as client:
            client.check_durability()
    except Unavailable:
        raise
    except DelayQError as error:
        return failed("durability", f"{error}: every schedule fails", FSYNC)
    return ok("durability", f"Fsynced, within {asked.timeout_milliseconds:,} ms")


def eviction(info: ServerInfo) -> Finding:
    """Check the eviction policy: eviction silently deletes tasks or leases."""
    policy = info.facts.get("maxmemory_policy", "")
    if "evicts" in durability.risks(info, DurabilitySpec()):
        volatile = policy.startswith("volatile")
        what = "locks, so that two runs can hold the same one" if volatile else "waiting tasks"
        return warning("eviction", f"maxmemory-policy {policy}: Redis may evict {what}", "set noeviction")
    return ok("eviction", f"maxmemory-policy {policy or 'unknown'}")


def memory(facts: Mapping[str, str]) -> Finding:
    """Check the memory: a full Redis refuses to schedule, but stored tasks still run."""
    used, limit = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if not limit:
        return ok("memory", f"{mebibytes(used)} used, no maxmemory")
    said = f"{mebibytes(used)} of {mebibytes(limit)} used"
    if used >= limit:
        return failed("memory", said, "schedule is refused: raise maxmemory, or let workers drain the queue")
    if used >= NEARLY_FULL * limit:
        return warning("memory", said, "raise maxmemory before schedule is refused")
    return ok("memory", said)


def mebibytes(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / (1 << 20):,.1f} MiB"


def vulnerable_lua(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Warn of a build that may let a user who runs scripts take over the server. Every delayq process runs scripts."""
    kind: Kind = "valkey" if "valkey_version" in facts else "redis"
    number = re.match(r"\d+\.\d+\.\d+", facts.get(f"{kind}_version", ""))
    if number is None or not (found := Release(kind, numbers(number[0]))).is_vulnerable:
        return
    first = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in FIXED[kind].items())
    yield warning(
        "lua",
        f"{found.label} may have {CVE}: a user who may run scripts can run code on the server; fixed in {first}",
        "upgrade; distributions fix it without a new version number: search the package's changelog "
        "(apt changelog redis-server, rpm -q --changelog redis), or ask the provider",
    )

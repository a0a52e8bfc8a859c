"""What kind of Redis it is, and whether it keeps what it is given: read from INFO, which needs few rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import durability
from delayq.cli.doctor.findings import Finding, failed, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.connection import SyncConnection

OLDEST = 5
NEARLY_FULL = 0.8
NEVER_LOST = "tasks can be lost when Redis restarts"


def server(connection: SyncConnection) -> Iterator[Finding]:
    """Check everything that INFO tells."""
    told, fsync = connection.send(durability.QUESTIONS)
    facts = durability.info(told)
    if not facts:
        yield warning("version", "Redis does not tell (INFO is refused)", "allow the user INFO")
        return
    yield version(facts)
    yield role(facts)
    yield persistence(facts, durability.setting(fsync))
    yield eviction(facts)
    yield memory(facts)


def version(facts: Mapping[str, str]) -> Finding:
    """5 is the oldest whose scripts may read the time and then write."""
    found = facts.get("redis_version", "")
    name = (
        f"Valkey {facts['valkey_version']}"
        if "valkey_version" in facts
        else f"Redis {found or 'of unknown version'}"
    )
    major = found.partition(".")[0]
    if not major.isdigit():
        return warning("version", name, f"delayq needs Redis {OLDEST} or newer")
    if int(major) < OLDEST:
        return failed("version", name, f"delayq needs Redis {OLDEST} or newer")
    return ok("version", name)


def role(facts: Mapping[str, str]) -> Finding:
    """A replica takes no writes."""
    if facts.get("role") in ("slave", "replica"):
        master = f"{facts.get('master_host', '?')}:{facts.get('master_port', '?')}"
        return failed("role", f"a replica of {master}", "point spec.redis at the master")
    return ok("role", f"master, {facts.get('connected_slaves', '0')} replicas")


def persistence(facts: Mapping[str, str], fsync: str) -> Finding:
    """Never lost takes an append-only file that reaches the disk."""
    found = durability.risks(facts, fsync)
    if "append_only_off" in found:
        return warning("persistence", f"append-only file off: {NEVER_LOST}", "set appendonly yes")
    if "append_only_failing" in found:
        return failed("persistence", "the append-only file could not be written", "is the disk full?")
    if "fsync_off" in found:
        return warning(
            "persistence",
            f"appendfsync no: {NEVER_LOST} with its machine",
            "set appendfsync everysec, or always",
        )
    return ok("persistence", f"append-only file on, appendfsync {fsync or 'unknown (CONFIG is refused)'}")


def eviction(facts: Mapping[str, str]) -> Finding:
    """Eviction forgets tasks without a word."""
    policy = facts.get("maxmemory_policy", "")
    if "evicts" in durability.risks(facts, ""):
        return warning(
            "eviction", f"maxmemory-policy {policy}: Redis may evict waiting tasks", "set noeviction"
        )
    return ok("eviction", f"maxmemory-policy {policy or 'unknown'}")


def memory(facts: Mapping[str, str]) -> Finding:
    """A full Redis refuses to schedule; what is there still runs."""
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
    """Say how many bytes."""
    return f"{count / (1 << 20):,.1f} MiB"

"""Texts for the messages of conditions and events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_COMMAND: Final = "delayq suspend is in effect"
"""In each message about the command, whose state is in Redis; `kubectl dq resume` looks for it."""

RISKS: Final = {
    "append_only_off": (
        "AppendOnlyOff",
        "Redis has appendonly no: tasks can be lost when it restarts. Set appendonly yes.",
    ),
    "append_only_failing": (
        "AppendOnlyFailing",
        "Redis cannot write its append-only file: tasks can be lost when it restarts. Is its disk full?",
    ),
    "saves_failing": (
        "SavesFailing",
        (
            "Redis cannot write its snapshots (rdb_last_bgsave_status): it takes no more tasks, or loses them when it "
            'restarts. Look at its disk, memory and log; with an append-only file, set save "".'
        ),
    ),
    "evicts": (
        "Evicts",
        (
            "Redis has a maxmemory-policy that evicts: short of memory, it may forget waiting tasks (allkeys-…), or "
            "locks, so that two hold one (volatile-…). Set noeviction."
        ),
    ),
    "fsync_off": (
        "FsyncOff",
        "Redis has appendfsync no: tasks can be lost with its machine. Set appendfsync everysec, or always.",
    ),
    "fsync_unconfirmed": (
        "FsyncUnconfirmed",
        (
            "Redis cannot confirm what durability.confirm Fsynced waits for: every schedule call fails, and stores "
            "nothing. It takes appendonly yes, appendfsync always, WAITAOF (Redis 7.2, Valkey), and the right to "
            "CONFIG GET; with everysec some versions confirm too early, which the scanner tests. Its log says why "
            "(writes_unconfirmed)."
        ),
    ),
    "replicas_missing": (
        "ReplicasMissing",
        (
            "Fewer replicas of Redis keep up than durability.replicas asks for: every schedule call fails, "
            "though the task is stored. Repair the replicas, or require fewer."
        ),
    ),
    "fsync_paused": (
        "FsyncPaused",
        (
            "Redis has no-appendfsync-on-rewrite yes: tasks can be lost with its machine while it rewrites its file. "
            "Set it to no."
        ),
    ),
    "rewrite_failing": (
        "RewriteFailing",
        (
            "Redis cannot rewrite its append-only file (aof_last_bgrewrite_status), which grows until the disk is full."
            " Look at its disk, memory and log."
        ),
    ),
}
"""Label values of delayq_durability_risk → reason and message of DurabilityMet; the most severe first."""

FSYNC_UNKNOWN: Final = (
    "Redis keeps an append-only file and evicts nothing. How often the file is forced to the disk is not known: the "
    "user may not use CONFIG GET, which reveals passwords. Check on the server, with redis-cli CONFIG GET: appendfsync "
    "should be everysec or always, and no-appendfsync-on-rewrite no."
)

MOST_LISTED = 5


def listed(names: Sequence[str]) -> str:
    """Name the first MOST_LISTED, and the number of the others."""
    shown = ", ".join(names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def timestamp(unix_seconds: float) -> str:
    """Format a time for the API, to the second, limited to its range."""
    return datetime.fromtimestamp(min(LATEST, max(0.0, unix_seconds)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def noun(component: str) -> str:
    """Return how sentences call a pod of a component."""
    return "API pod" if component == "api" else component

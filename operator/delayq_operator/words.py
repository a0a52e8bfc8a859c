"""Phrases for messages that people read in conditions and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RISKS: Final = {
    "append_only_off": (
        "AppendOnlyOff",
        "Redis has appendonly no: tasks can be lost when it restarts. Set appendonly yes.",
    ),
    "append_only_failing": (
        "AppendOnlyFailing",
        "Redis cannot write its append-only file: tasks can be lost when it restarts. Is its disk full?",
    ),
    "fsync_off": (
        "FsyncOff",
        "Redis has appendfsync no: tasks can be lost with its machine. Set appendfsync everysec, or always.",
    ),
    "evicts": (
        "Evicts",
        "Redis has a maxmemory-policy that evicts: it may forget waiting tasks. Set noeviction.",
    ),
}
"""Label values of delayq_durability_risk → reason and message of DurabilityAtRisk; the gravest first."""

_SPEC: Final = "check spec.redis"
OUTAGES: Final = {
    "refused": f"nobody listens at that address; {_SPEC}, and whether Redis runs",
    "timeout": f"it does not answer in time; {_SPEC}, network policies, and how busy Redis is",
    "dns": f"its host name is not known; {_SPEC}",
    "tls": f"TLS failed; {_SPEC}.tls, the CA and whether that port has TLS",
    "auth": f"it refuses the password or the user; {_SPEC}.authSecretRef and the Secret",
    "denied": "it refuses our commands; compare the rights of the user with those it needs",
    "loading": "it is loading its data; wait",
    "read_only": f"it is a replica that takes no writes; {_SPEC}, it has to be the master",
    "cannot_persist": "it takes no writes because it cannot write to its disk",
    "other": f"{_SPEC}, its Secret, network policies and the logs of scanners",
}
"""Label values of delayq_redis_down → what is wrong, and what to look at."""

MOST_LISTED = 5


def listed(names: Sequence[str]) -> str:
    """Name a few things, and how many more there are."""
    shown = ", ".join(names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown

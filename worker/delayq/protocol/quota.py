"""The quota of one shard in a queue's limits. Pure.

Shards may be on different servers and share no state; their quotas add up to the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.contract import Finished, Limits
    from delayq.protocol.scripts import Argument

DEFAULT_BYTES: Final = 2 << 30
"""As ten million tasks of 200 bytes: the default of maxLength is reached first if they are smaller."""
LARGEST_TASK_BYTES: Final = 32 << 20
"""More than the largest maxPayloadBytes and maxHeaderBytes: each shard takes one such task."""


def part(limit: int, shard: int, shards: int) -> int:
    """Return the part of one shard: whole numbers that differ by one at most and add up to the limit.

    Each shard has at least one, even with a limit below the number of shards: at zero its tasks would never run.
    Validation rejects such documents, but during resharding there may be more shards than the document says.
    """
    return max(1, (limit + shards - 1 - shard) // shards)


def quota(limits: Limits | None, shard: int, shards: int) -> dict[str, Argument]:
    """Return the quota of one shard, as arguments of claim.lua and wake.lua; an absent limit costs Redis nothing."""
    found: dict[str, Argument] = {"interval_us": "0", "burst": 0, "most": 0}
    if limits and limits.max_in_flight is not None:
        found["most"] = part(limits.max_in_flight, shard, shards)
    if limits and limits.rate_per_second is not None:
        # A rate needs no rounding: of one a second, each of four shards has one every four seconds.
        found["interval_us"] = f"{shards * 1e6 / limits.rate_per_second:.6f}"
        found["burst"] = part(limits.burst or limits.rate_per_second, shard, shards)
    return found


def most_bytes(limits: Limits, shards: int) -> int:
    """Return the most bytes of a queue with so many shards, or the default."""
    return limits.max_bytes or max(DEFAULT_BYTES, shards * LARGEST_TASK_BYTES)


def room(limits: Limits, shards: int) -> dict[str, int]:
    """Return how many tasks and bytes one shard may hold, as arguments of schedule.lua."""
    return {
        "max_length": -(-limits.max_length // shards),
        "max_bytes": -(-most_bytes(limits, shards) // shards),
    }


def history(finished: Finished | None, shard: int, shards: int) -> dict[str, int]:
    """Return the bounds of one shard's history: seconds, count and bytes. Without a history, nothing is kept."""
    if finished is None:
        return {"seconds": 0, "count": 0, "bytes": 0}
    count, size = part(finished.count, shard, shards), part(finished.bytes, shard, shards)
    return {"seconds": finished.seconds, "count": count, "bytes": size}

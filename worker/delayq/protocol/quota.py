"""What a shard may have of a limit that a queue has as a whole. Pure.

Shards know nothing of each other, so that each can be on a server of its own; what each may have adds up to the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from delayq.contract import Limits


def part(limit: int, shard: int, shards: int) -> int:
    """Return the part of one shard: whole numbers that differ by one at most and add up to the limit.

    With fewer than there are shards, each still has one: a shard with none would keep its tasks for ever. Documents
    with such limits are refused, but while the number of shards changes there may be more than the document says.
    """
    return max(1, (limit + shards - 1 - shard) // shards)


class Share(NamedTuple):
    """What one shard may let begin, as claim.lua and wake.lua take it."""

    interval_us: str = "0"
    burst: int = 0
    most: int = 0


def share(limits: Limits | None, shard: int, shards: int) -> Share:
    """Return the share of one shard; a limit that is absent costs Redis nothing."""
    if limits is None:
        return Share()
    most = 0 if limits.max_in_flight is None else part(limits.max_in_flight, shard, shards)
    if limits.rate_per_second is None:
        return Share(most=most)
    # A rate needs no rounding: of one a second, each of four shards has one every four seconds.
    interval_us = f"{shards * 1e6 / limits.rate_per_second:.6f}"
    return Share(interval_us, part(limits.burst or limits.rate_per_second, shard, shards), most)

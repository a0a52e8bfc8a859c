"""Shard groups: shards that are certain to share one server, so that no other server can delay them.

A standalone Redis, or one behind Sentinels, holds all shards: they form one group. In a Cluster each shard is a group
of its own, because its slot can move to another server at any time. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.protocol.commands import Commands


@dataclass(frozen=True)
class ShardGroup:
    """All shards, or only one of them."""

    commands: Commands
    only: int | None = None

    @property
    def shards(self) -> Sequence[int]:
        """The current shards; the shard map may add and remove some at any time."""
        there = range(len(self.commands.shards))
        return there if self.only is None else there[self.only : self.only + 1]

    @property
    def swept(self) -> Sequence[int]:
        """The same; the group of shard 0 also has dropped shards, where a fail-over may have left leases."""
        dropped = range(len(self.commands.shards), self.commands.shard_map.widest) if 0 in self.shards else ()
        return [*self.shards, *dropped]

    def named(self, service: str) -> str:
        """Return the name of a service of this shard group."""
        return service if self.only is None else f"{service}-{self.only}"


def groups(commands: Commands, *, is_cluster: bool) -> list[ShardGroup]:
    """Return all current shard groups; `is_cluster` is Address.is_cluster."""
    return (
        [ShardGroup(commands, shard) for shard in range(len(commands.shards))]
        if is_cluster
        else [ShardGroup(commands)]
    )

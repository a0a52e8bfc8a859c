"""Lanes: shards that one server is sure to hold together, so that no other server can hold them up.

One standalone Redis, or one behind Sentinels, has all shards: they are one lane. In a Cluster each shard is a lane of
its own, for its slot may move to another server at any time. Nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.protocol.commands import Broker


@dataclass(frozen=True)
class Lane:
    """All shards, or only one of them."""

    broker: Broker
    only: int | None = None

    @property
    def shards(self) -> Sequence[int]:
        """Those there are now: the layout may gain some and lose some at any time."""
        there = range(len(self.broker.shards))
        return there if self.only is None else there[self.only : self.only + 1]

    @property
    def swept(self) -> Sequence[int]:
        """The same and, with shard 0, those that were dropped: a fail-over may have left leases there."""
        dropped = range(len(self.broker.shards), self.broker.layout.widest) if 0 in self.shards else ()
        return [*self.shards, *dropped]

    def named(self, service: str) -> str:
        """Return the name of a service that does its work for this lane."""
        return service if self.only is None else f"{service}-{self.only}"


def lanes(broker: Broker, *, apart: bool) -> list[Lane]:
    """Return all lanes there are now; `apart` is Address.apart."""
    return [Lane(broker, shard) for shard in range(len(broker.shards))] if apart else [Lane(broker)]

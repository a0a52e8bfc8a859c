"""How many shards a queue has, had and will have, as its scanners report, and which shards are not served. Pure.

Resharding takes three steps: settled, announced (scanners and workers also serve the new shards), moving (new tasks go
to their new home, others migrate or run), settled. Not here: the condition (sharding_conditions.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from delayq.contract import metrics as table
from delayq.contract.queue import MOST_SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SERVER: Final = re.compile(r"[][A-Za-z0-9._:-]{3,253}")


@dataclass(frozen=True, slots=True, order=True)
class ShardMap:
    """The newest shard map that a scanner reports; each number is at least 1."""

    epoch: int
    now: int
    """Shards that tasks are stored in."""
    was: int
    """Shards that tasks may still be in."""
    target: int
    """Shards that were asked for."""

    @classmethod
    def of(cls, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> Self | None:
        """Read the shard map of one scanner; None if it reports none."""
        epoch, shards = -1, dict[str, int]()
        for name, labels, value in samples:
            if name == table.SHARD_MAP_EPOCH.name:
                epoch = int(value)
            elif name == table.SHARD_MAP_SHARDS.name and value >= 1:
                shards[labels.get("version", "")] = int(min(value, MOST_SHARDS))
        if epoch < 0 or not shards.keys() >= set(table.SHARD_MAP_VERSIONS):
            return None
        return cls(epoch, *(shards[which] for which in table.SHARD_MAP_VERSIONS))

    @property
    def settled(self) -> bool:
        """Whether no resharding is in progress or announced."""
        return self.now == self.was == self.target

    @property
    def shards_in_use(self) -> int:
        """How many shards may have tasks."""
        return max(self.now, self.was, self.target)


@dataclass(frozen=True, slots=True, order=True)
class Down:
    """A shard that Redis does not serve, according to every scanner that reports."""

    shard: int
    cause: str
    """One of contract.metrics.OUTAGES."""
    server: str
    """Host and port; empty if unknown."""

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self | None:
        """Read one scanner's report of a shard; None if it is invalid."""
        shard, cause, server = (labels.get(name, "") for name in ("shard", "cause", "server"))
        if not shard.isdecimal() or int(shard[:4]) >= MOST_SHARDS or cause not in table.OUTAGES:
            return None
        return cls(int(shard), cause, server if _SERVER.fullmatch(server) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The shards of a queue in one reading."""

    shard_map: ShardMap | None = None
    down: tuple[Down, ...] = ()
    """Those that Redis does not serve."""
    leaderless: tuple[int, ...] = ()
    """Shards that no scanner reports, though Redis may serve them."""
    tasks: int | None = None
    """Tasks to check while resharding; None: not every shard reports it."""
    checked: int = 0
    moved: int = 0
    waiting: int = 0
    """Tasks that stay until they have run."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers."""
        return self.tasks or 0, self.checked, self.moved, self.waiting

    @property
    def facts(self) -> tuple[object, ...]:
        """Everything else."""
        return self.shard_map, self.down, self.leaderless

"""How far a change of the number of shards is, as the scanners of a run export it. Not here: asking them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from delayq.contract.metrics import RESHARDING_CHECKED_TASKS, RESHARDING_TASKS

if TYPE_CHECKING:
    from delayq.protocol.shard_map import ShardMap


class Progress(NamedTuple):
    """Tasks that were looked at, of those to look at."""

    checked: int = 0
    tasks: int = 0

    def plus(self, other: Progress) -> Progress:
        """Return both together: each scanner tells of the shards it leads."""
        return Progress(self.checked + other.checked, self.tasks + other.tasks)


def parse(text: str) -> Progress:
    """Read it from a scanner's metrics; nothing while it moves nothing."""
    return Progress(_total(text, RESHARDING_CHECKED_TASKS.name), _total(text, RESHARDING_TASKS.name))


def _total(text: str, name: str) -> int:
    return round(sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))))


def moving(shard_map: ShardMap, progress: Progress) -> str:
    """`moving 3 → 6: 1,373 of 3,000 looked at`; empty while nothing changes."""
    if shard_map.settled:
        return ""
    if not shard_map.moves:
        return f"about to move {shard_map.shards} → {shard_map.target}"
    said = f"moving {shard_map.was} → {shard_map.target}"
    return f"{said}: {progress.checked:,} of {progress.tasks:,} looked at" if progress.tasks else said

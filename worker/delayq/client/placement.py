"""Which shard stores which tasks, also during resharding; the rest of enqueue ignores resharding.

Generators, as in operations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import Chunk
from delayq.protocol.shard_map import ShardMapOutdated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.client.routing import Operation, ShardRouter
    from delayq.protocol.commands import Commands
    from delayq.protocol.shard_map import ShardMap


class Onward(NamedTuple):
    """Tasks of a chunk that have another home; `moving` migrate there."""

    chunk: Chunk
    moving: list[str]


class Placement:
    """Chunks by the shard map of one queue."""

    def __init__(self, commands: Commands, router: ShardRouter) -> None:
        """Share the queue and its router."""
        self._commands, self._router = commands, router

    def shard_map(self) -> ShardMap:
        """Return the current shard map; it may change during a call."""
        return self._commands.shard_map

    def placed(self, chunks: Sequence[Chunk]) -> Operation[Sequence[Chunk]]:
        """Read the shard map before the first task is stored; until then it is assumed."""
        if all(chunk.shard_map.epoch for chunk in chunks):
            return chunks
        pinned = yield from self._router.known(chunks[0].shard, use=True)
        return _regrouped(chunks, pinned.shard_map)

    def refused(self, answer: object) -> bool:
        """Whether a shard rejected a chunk because it has a newer shard map, which is adopted."""
        if isinstance(answer, ShardMapOutdated):
            self._commands.apply_shard_map(answer.shard_map)
        return isinstance(answer, ShardMapOutdated)

    def unsettled(self, chunk: Chunk, error: ShardMapOutdated) -> bool:
        """Whether to wait before a rejected chunk is sent again, because no newer shard map is known."""
        return error.shard_map is None or chunk.shard_map is self._commands.shard_map

    def again(self, stale: Sequence[Chunk], onward: Sequence[Onward]) -> Operation[list[Chunk]]:
        """Return chunks of rejected tasks by their current shards, and of tasks that have migrated to their home."""
        chunks = _regrouped(stale, self._commands.shard_map)
        for each in onward:
            pinned = self._commands.pinned_to(each.chunk.shard_map)
            try:
                for task_id in each.moving:
                    yield from self._router.bring(pinned, each.chunk.shard, task_id)
            except ShardMapOutdated as error:
                self._commands.apply_shard_map(error.shard_map)
                chunks += _regrouped([each.chunk], self._commands.shard_map)
            else:
                chunks += _regrouped([each.chunk], each.chunk.shard_map, at_home=True)
        return chunks


def _regrouped(chunks: Iterable[Chunk], shard_map: ShardMap, *, at_home: bool = False) -> list[Chunk]:
    """Group the tasks of chunks by the first shard to call under another shard map, or by their homes."""
    found: dict[tuple[int, bool, bool], Chunk] = {}
    for chunk in chunks:
        for nth, position in enumerate(chunk.positions):
            task_id = chunk.flat[3 * nth]
            where = (shard_map.home(task_id), False) if at_home else shard_map.first_lookup(task_id)
            new = found.setdefault((*where, chunk.doubtful), Chunk(shard_map, *where, [], [], chunk.doubtful))
            new.positions.append(position)
            new.flat.extend(chunk.flat[3 * nth : 3 * nth + 3])
    return list(found.values())

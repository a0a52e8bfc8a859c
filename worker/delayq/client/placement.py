"""Which shard takes which tasks, and where those go that it did not take. Enqueue meets resharding here only.

Generators, as in operations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import Chunk
from delayq.protocol.shard_map import ShardMapOutdated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delayq.client.routing import Operation, ShardRouter
    from delayq.protocol.commands import Commands
    from delayq.protocol.shard_map import ShardMap


class Onward(NamedTuple):
    """Tasks of a chunk that have another home; `moving` are on their way there."""

    chunk: Chunk
    moving: list[str]


class Placement:
    """Chunks by the shard map of one queue."""

    def __init__(self, commands: Commands, router: ShardRouter) -> None:
        """Share the queue, and what is known of its shards."""
        self._commands, self._router = commands, router

    def shard_map(self) -> ShardMap:
        """Return the one that holds now; it may change while a call goes on."""
        return self._commands.shard_map

    def placed(self, chunks: Sequence[Chunk]) -> Operation[Sequence[Chunk]]:
        """Ask for the shard map before something is stored for the first time: until then it is a guess."""
        if all(chunk.shard_map.epoch for chunk in chunks):
            return chunks
        by = yield from self._router.known(chunks[0].shard, use=True)
        return _regrouped(chunks, by.shard_map)

    def refused(self, answer: object) -> bool:
        """Whether a shard stored nothing of a chunk, because it knows a newer shard map: take note of that."""
        if isinstance(answer, ShardMapOutdated):
            self._commands.learn(answer.shard_map)
        return isinstance(answer, ShardMapOutdated)

    def unsettled(self, chunk: Chunk, error: ShardMapOutdated) -> bool:
        """Whether to wait before a chunk that was refused is sent again: no newer shard map is known."""
        return error.shard_map is None or chunk.shard_map is self._commands.shard_map

    def again(self, stale: Sequence[Chunk], onward: Sequence[Onward]) -> Operation[list[Chunk]]:
        """Return chunks for where refused tasks belong now, and those that were not where they were asked for.

        The latter once they have arrived at their homes.
        """
        chunks = _regrouped(stale, self._commands.shard_map)
        for each in onward:
            by = self._commands.by(each.chunk.shard_map)
            try:
                for task_id in each.moving:
                    yield from self._router.bring(by, each.chunk.shard, task_id)
            except ShardMapOutdated as error:
                self._commands.learn(error.shard_map)
                chunks += _regrouped([each.chunk], self._commands.shard_map)
            else:
                chunks += _at_home(each.chunk)
        return chunks


def _regrouped(chunks: Iterable[Chunk], shard_map: ShardMap) -> list[Chunk]:
    """Return the tasks of chunks for where they are to be asked for first in another shard map."""
    return _grouped(chunks, shard_map, shard_map.first_lookup)


def _at_home(chunk: Chunk) -> list[Chunk]:
    """Return the tasks of a chunk for the shards that are their homes."""
    shard_map = chunk.shard_map
    return _grouped([chunk], shard_map, lambda task_id: (shard_map.home(task_id), False))


def _grouped(
    chunks: Iterable[Chunk], shard_map: ShardMap, door: Callable[[str], tuple[int, bool]]
) -> list[Chunk]:
    found: dict[tuple[int, bool, bool], Chunk] = {}
    for chunk in chunks:
        for nth, position in enumerate(chunk.positions):
            where = door(chunk.flat[3 * nth])
            new = found.setdefault((*where, chunk.doubtful), Chunk(shard_map, *where, [], [], chunk.doubtful))
            new.positions.append(position)
            new.flat.extend(chunk.flat[3 * nth : 3 * nth + 3])
    return list(found.values())

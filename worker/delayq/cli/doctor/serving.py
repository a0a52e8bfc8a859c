"""Which shards are served: a node that is away keeps its own from being checked, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.cli.doctor.findings import Finding, unreachable
from delayq.cli.look import not_served
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.connection import SyncConnection
    from delayq.protocol.commands import Commands


def serving(connection: SyncConnection, commands: Commands) -> Iterator[Finding | list[int]]:
    """Yield what is wrong, and last the shards that are served; all of them where none is, for the rest to say why."""
    every = range(commands.shard_map.covers)
    answers = connection.answers([commands.counts(shard) for shard in every])
    away = {shard: answers[shard] for shard in every if isinstance(answers[shard], Unavailable)}
    if len(away) < len(every):
        for said in not_served(away, len(every)):
            yield unreachable("shards", said, "its tasks wait for it, those of the others run")
    yield [shard for shard in every if shard not in away] or list(every)

"""Tasks that wait for a worker that their arguments fit, among those that wait for their next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.protocol.keys import is_occurrence
from delayq.protocol.results import State
from delayq.worker.settlements import REFUSED

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.connection import SyncConnection
    from delayq.protocol.commands import Commands

SAMPLED = 100  # of all shards together, those whose attempt is due next
OF_SHARD = 10  # at least


def refused_sentence(connection: SyncConnection, commands: Commands, shards: Collection[int]) -> str:
    """Say how many of the sampled tasks wait for such a worker, and why one does; empty if none does."""
    limit = max(OF_SHARD, SAMPLED // max(1, len(shards)))
    calls = [commands.list(shard, State.RETRYING, limit=limit, kinds=False) for shard in shards]
    pages = [page for page in connection.answers(calls) if not isinstance(page, Exception)]
    rows = [row for page in pages for row in page.rows.values()]
    refused = [row for row in rows if row.failed.error.startswith(REFUSED)]
    if not refused:
        return ""
    why = refused[0].failed.error.partition(": ")[2]
    those = (
        f"{len(refused):,} of {len(rows):,} sampled retrying tasks {'waits' if len(refused) == 1 else 'wait'}"
    )
    schedules = sorted({row.id[1:].partition("@")[0] for row in refused if is_occurrence(row.id)})
    of = (
        f" (of {'schedule' if len(schedules) == 1 else 'schedules'} {', '.join(schedules)})"
        if schedules
        else ""
    )
    return f"{those}{of} for a worker that their arguments fit, such as {refused[0].id}: {why}"

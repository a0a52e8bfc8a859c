"""Operations on dead letters: list, group by error, give a new life, forget, export."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from delayq.broker import BATCH
from delayq.operations import Operations, persistently
from delayq.values import DeadGroup, State, TaskRow, TaskView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.operations import Operation

# What differs between two deaths of the same cause: numbers, hex strings, quoted names.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b|\d+|'[^']*'|\"[^\"]*\"")

VIEWS = (
    20  # whole tasks per round trip: 5 MiB at the default limit of a payload, which arrive within a time-out
)


class Redriven(NamedTuple):
    """How many dead letters got (or, in a dry run, would get) a new life, and over how long their due times spread."""

    tasks: int
    seconds: float


class Letters:
    """The dead letters of one queue. Each method is a generator, as in operations.py."""

    def __init__(self, operations: Operations) -> None:
        """Share the queue and its limits."""
        self._operations, self._broker = operations, operations.broker

    def rows(self, ids: Sequence[str] | None = None) -> Operation[list[TaskRow]]:
        """Return dead letters by time of death: all, or those with these ids."""
        found = yield from self._operations.page(State.DLQ, offset=0, limit=1 << 53)
        if ids is None:
            return found
        wanted = set(ids)
        return [row for row in found if row.id in wanted]

    def groups(self) -> Operation[list[DeadGroup]]:
        """Return dead letters grouped by the fingerprint of their error, the largest group first."""
        by_error: dict[str, list[TaskRow]] = {}
        for row in (yield from self.rows()):
            by_error.setdefault(fingerprint(row.failed.error), []).append(row)
        groups = [
            DeadGroup(rows[-1].failed.error, len(rows), rows[-1].at_ms, tuple(row.id for row in rows))
            for rows in by_error.values()
        ]
        return sorted(groups, key=lambda group: (-group.count, group.error))

    def redrive(
        self, ids: Sequence[str], rate_per_second: float | None, *, dry_run: bool
    ) -> Operation[Redriven]:
        """Give dead letters a new life, spread in time: the n-th is due n / rate seconds from now.

        The spreading lies in the due times, so it holds though nobody stays to pace it.
        """
        if rate_per_second is not None and not rate_per_second > 0:
            raise ValueError(f"rate_per_second: expected a number above 0, got {rate_per_second!r}")
        gap_ms = 1000 / rate_per_second if rate_per_second else 0.0
        seconds = len(ids) * gap_ms / 1000
        if dry_run:
            return Redriven(len(ids), seconds)
        delays = {task_id: int(nth * gap_ms) for nth, task_id in enumerate(ids)}
        count = 0
        for shard, batch in self._batches(ids):
            letters = [item for task_id in batch for item in (task_id, delays[task_id])]
            [redriven] = yield from persistently([self._broker.redrive(shard, letters)])
            count += redriven
        return Redriven(count, seconds)

    def purge(self, ids: Sequence[str]) -> Operation[int]:
        """Forget dead letters for good; returns how many there were."""
        count = 0
        for shard, batch in self._batches(ids):
            [purged] = yield from persistently([self._broker.purge(shard, batch)])
            count += purged
        return count

    def views(self, ids: Sequence[str]) -> Operation[list[TaskView]]:
        """Return dead letters whole, to show or export; those gone meanwhile are left out."""
        found: list[TaskView | None] = []
        for at in range(0, len(ids), VIEWS):
            found += yield from persistently([self._broker.get(task_id) for task_id in ids[at : at + VIEWS]])
        return [view for view in found if view is not None and view.state is State.DLQ]

    def _batches(self, ids: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        by_shard: dict[int, list[str]] = {}
        for task_id in ids:
            by_shard.setdefault(self._broker.shard_of(task_id), []).append(task_id)
        for shard, members in by_shard.items():
            for at in range(0, len(members), BATCH):
                yield shard, members[at : at + BATCH]


def fingerprint(error: str) -> str:
    """Return an error with what varies in it replaced: `order 17 not found` becomes `order … not found`."""
    return _VARIABLE.sub("…", error.partition("\n")[0])[:200]

"""Operations on dead letters: list, group by error, redrive, purge, export."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import check_kind, check_whole, stored_id
from delayq.client.operations import VIEWS
from delayq.client.times import MAX_MS
from delayq.protocol.results import DeadGroup, Selection, State, TaskRow, TaskView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.client.operations import Operations
    from delayq.client.routing import Operation
    from delayq.protocol.commands import Call, Commands

# Variable parts of errors with the same cause: numbers, hex strings, quoted names.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b|\d+|'[^']*'|\"[^\"]*\"")


class Redriven(NamedTuple):
    """The number of redriven dead letters (or, in a dry run, to redrive), and the time over which they are due."""

    tasks: int
    seconds: float


class DeadLetters:
    """The dead letters of one queue. Each method is a generator, as in operations.py."""

    def __init__(self, operations: Operations) -> None:
        """Share the queue and its limits."""
        self._operations = operations

    def rows(
        self, ids: Sequence[str] | None = None, tag: str | None = None, kind: str | None = None
    ) -> Operation[list[TaskRow]]:
        """Return dead letters by time of death: all, or those with these ids, this tag and this kind ("": none)."""
        if kind is not None and kind != "":
            check_kind(kind)
        wanted = None if ids is None else set(_listed(ids, kind or None))
        found = yield from self._operations.rows(State.DEAD, chosen=Selection(tag, kind or None))
        return [
            row
            for row in found
            if (wanted is None or row.id in wanted) and (kind is None or row.kind == kind)
        ]

    def groups(self) -> Operation[list[DeadGroup]]:
        """Return dead letters grouped by kind and the fingerprint of their error, the largest group first."""
        by_error: dict[tuple[str, str], list[TaskRow]] = {}
        for row in (yield from self.rows()):
            by_error.setdefault((row.kind, fingerprint(row.failed.error)), []).append(row)
        groups = [
            DeadGroup(rows[-1].failed.error, len(rows), rows[-1].at_ms, tuple(row.id for row in rows), kind)
            for (kind, _), rows in by_error.items()
        ]
        return sorted(groups, key=lambda group: (-group.count, group.error, group.kind))

    def redrive(
        self, ids: Sequence[str], rate_per_second: float | None, kind: str | None = None, *, dry_run: bool
    ) -> Operation[Redriven]:
        """Redrive dead letters, spread over time: the n-th is due n / rate seconds from now.

        The due times set the rate, so no process has to run until the end.
        """
        if rate_per_second is not None and (
            type(rate_per_second) not in {int, float} or not rate_per_second > 0
        ):
            raise ValueError(f"rate_per_second: expected a number above 0, got {rate_per_second!r}")
        gap_ms = 1000 / rate_per_second if rate_per_second else 0.0
        chosen = _listed(ids, kind)
        seconds = len(chosen) * gap_ms / 1000
        if seconds * 1000 >= MAX_MS:
            raise ValueError(
                f"rate_per_second: expected a rate with a due time before the year 6429, got {rate_per_second!r}"
            )
        if dry_run:
            return Redriven(len(chosen), seconds)
        delays = {task_id: int(nth * gap_ms) for nth, task_id in enumerate(chosen)}

        def call(pinned: Commands, shard: int, batch: list[str]) -> Call[int]:
            return pinned.redrive(shard, [item for task_id in batch for item in (task_id, delays[task_id])])

        return Redriven((yield from self._operations.homes.everywhere(chosen, call)), seconds)

    def purge(
        self, ids: Sequence[str], before_ms: int | None = None, kind: str | None = None
    ) -> Operation[int]:
        """Forget dead letters for good that died before `before_ms`; returns how many there were."""
        if before_ms is not None:
            check_whole("before_ms", before_ms)
        fence = "inf" if before_ms is None else before_ms

        def call(pinned: Commands, shard: int, batch: list[str]) -> Call[int]:
            return pinned.purge(shard, batch, before_ms=fence)

        return (yield from self._operations.homes.everywhere(_listed(ids, kind), call))

    def views(self, ids: Sequence[str], kind: str | None = None) -> Operation[list[TaskView]]:
        """Return complete dead letters, to show or export; those deleted meanwhile are omitted."""
        chosen, found = _listed(ids, kind), list[TaskView]()
        for at in range(0, len(chosen), VIEWS):
            found += yield from self._operations.views(chosen[at : at + VIEWS])
        return [view for view in found if view.state is State.DEAD]


def _listed(ids: object, kind: str | None) -> list[str]:
    """Return stored IDs, or raise TypeError: also for a string, a sequence of one-letter IDs, which match no task."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise TypeError(f"ids: expected a list of task IDs, got {ids!r:.80}")
    found = list(ids)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"ids: expected task IDs, which are strings, got {each!r:.80}")
    return found if kind is None else [stored_id(each, kind) for each in found]


def fingerprint(error: str) -> str:
    """Replace the variable parts of an error: `order 17 not found` becomes `order … not found`."""
    return _VARIABLE.sub("…", error.partition("\n")[0])[:200]

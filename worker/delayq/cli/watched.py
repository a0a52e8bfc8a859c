"""Queues as `delayq top` sees them: the last sample of each, how fast its counters rise, and all of them in a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq.cli.counts import documented, following, oldest
from delayq.cli.look import look
from delayq.cli.output import Table
from delayq.cli.words import length
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.cli import views
    from delayq.cli.look import Look
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts

RATES = ("scheduled", "claimed", "acked", "retried", "buried")


@dataclass
class Watched:
    """A queue, its last sample, and how fast its counters rise."""

    client: TargetClient
    seen: Look | None = None
    trouble: str = ""
    per_second: Mapping[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Take a sample. Rates are by Redis' clock, and unknown until there are two samples."""
        before = self.seen
        try:
            self.seen = look(self.client)
        except Unavailable as error:
            self.trouble = f"{error}; trying again"
            self.seen, self.per_second = None, {}
            return
        found = self.seen.found
        self.trouble = "; ".join([*documented(self.client), *self.seen.notes]).replace("note: ", "")
        comparable = before is not None and before.away.keys() == self.seen.away.keys()
        self.per_second = rates(before.found, found) if comparable and before is not None else {}

    @property
    def found(self) -> Counts | None:
        """The numbers of the last sample; None while Redis does not serve."""
        return None if self.seen is None else self.seen.found

    def view(self) -> views.View:
        """Return the sample for programs."""
        if self.seen is None:
            return {"queue": self.client.queue, "error": self.trouble}
        return self.seen.view(self.client.queue) | {"per_second": dict(self.per_second)}


def table(watched: Sequence[Watched]) -> Table:
    """Return a column for each queue, a row for each fact, and below them whatever is wrong."""
    columns = [_column(each) for each in watched]
    rows = [[name, *(column.get(name, "") for column in columns)] for name in max(columns, key=len)]
    troubles = [f"{each.client.queue}: {each.trouble}" for each in watched if each.trouble]
    return Table(["", *(f">{each.client.queue}" for each in watched)], rows, troubles)


def _column(watched: Watched) -> dict[str, str]:
    found = watched.found
    if found is None:
        return {}
    names = ("delayed", "retry", "suspect", "processing", "dlq")
    states = {state: f"{getattr(found, state):,}" for state in names}
    due = {f"due in {length(horizon)}": f"{tasks:,}" for horizon, tasks in found.due_within.items()}
    speeds = {
        f"{name}/s": f"{watched.per_second[name]:,.1f}" if name in watched.per_second else "-"
        for name in RATES
    }
    weight = {} if watched.client.limits.max_bytes is None else {"bytes": f"{found.bytes:,}"}
    overdue = {"overdue": f"{found.overdue:,}", "oldest overdue": oldest(found), "next due": following(found)}
    return {**states, **weight, **overdue, **due, **speeds}


def rates(before: Counts, after: Counts) -> dict[str, float]:
    """Return how much each counter rose a second; a queue that was emptied meanwhile starts again."""
    seconds = (after.now_ms - before.now_ms) / 1000
    if seconds <= 0:
        return {}
    rose = {name: after.stats.get(name, 0) - before.stats.get(name, 0) for name in RATES}
    return {name: round(max(0, count) / seconds, 1) for name, count in rose.items()}

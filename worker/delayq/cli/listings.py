"""Lists of tasks: a page of one state or of all states, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.cli import views
from delayq.cli.formats import relative
from delayq.cli.output import Table
from delayq.protocol.results import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts, Selection, TaskRow

HEADINGS: Final = {"due": "DUE", "began": "BEGAN", "lease_expires": "LEASE-EXPIRES", "died": "DIED"}
RANK: Final = {State.IN_FLIGHT: 0, State.SUSPECT: 1, State.DEAD: 3}
WAITS: Final = 2
"""Rank of the other states, whose tasks are listed together by due time."""


def every_state(
    client: TargetClient, chosen: Selection, counts: Counts, *, offset: int, limit: int
) -> list[TaskRow]:
    """Return a page of the tasks of all states: in flight, suspect, waiting, dead.

    The states are read one after the other: a task that changes its state meanwhile may be missed.
    """
    found: dict[str, TaskRow] = {}
    for state in views.INSTANT:
        if _has_tasks(state, counts):
            rows = client.list(state, offset=0, limit=offset + limit, **chosen._asdict())
            found |= {row.id: row for row in rows}
    rows = sorted(found.values(), key=lambda row: (RANK.get(row.state, WAITS), row.at_ms, row.id))
    return rows[offset : offset + limit]


def _has_tasks(state: State, counts: Counts) -> bool:
    """Return whether a state has tasks. Those that are due, too, are scheduled or retrying."""
    due = counts.due if state in (State.SCHEDULED, State.RETRYING) else 0
    return bool(getattr(counts, state.value) + due)


def numbers(counts: Counts, without: Collection[str] = ()) -> str:
    """Return the numbers of tasks in the states but `without`: `2 retrying, 1 dead`."""
    names = ("due", *(state.value for state in views.INSTANT if state is not State.SUSPECT))
    shown = {name: getattr(counts, name) for name in names if name not in without}
    return ", ".join(f"{number:,} {name}" for name, number in shown.items() if number)


def whole(counts: Counts) -> int:
    """Return the number of tasks in all states; suspects are among those that are due."""
    return counts.due + counts.scheduled + counts.retrying + counts.in_flight + counts.parked + counts.dead


def table(rows: list[TaskRow], now_ms: int, state: State | None = None) -> Table:
    """Return a page of tasks as a table, with their kinds if one has a kind; `state`: of all of them."""
    kinds = any(row.kind for row in rows)
    kind = ["KIND"] if kinds else []
    when = ["STATE", "TIME"] if state is None else [HEADINGS[views.INSTANT[state]]]
    return Table(
        ["ID", *kind, *when, ">BYTES", ">FAILURES", ">CRASHES", "ERROR"],
        [
            [
                row.id,
                *([f"{row.kind} {row.kind_version}" if row.kind else ""] if kinds else []),
                *(_when(row, now_ms) if state is None else [relative(row.at_ms, now_ms)]),
                f"{row.size:,}",
                str(row.failed.failures),
                str(row.failed.crashes),
                views.error(row.failed).partition("\n")[0],
            ]
            for row in rows
        ],
    )


def _when(row: TaskRow, now_ms: int) -> list[str]:
    """Return the state of a task and its time: `dead`, `died 9s ago`."""
    what = {"lease_expires": "lease"}.get(views.INSTANT[row.state], views.INSTANT[row.state])
    return [row.state.value, f"{what} {relative(row.at_ms, now_ms)}"]

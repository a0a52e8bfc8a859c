"""The waiting tasks of a queue as they are in Redis now: counted, not read.

Counts by instants are asked for at ever finer instants where tasks are, until times are known to 10 ms or the budget is
spent. So a look costs the same for a thousand tasks and for ten million: at most 40,000 instants of a few microseconds
each, 100 a call, between which Redis serves everybody else. Of a queue in motion it is a picture taken over a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from delayq.simulation.tasks import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.protocol.results import Counts


class Counter(Protocol):
    """SyncClient.counts."""

    def __call__(self, *, instants_ms: Sequence[int] = ...) -> Counts: ...


BUDGET: Final = 40_000
AT_ONCE: Final = 100
FINEST_MS: Final = 10
FIRST_PARTS: Final = 200
PARTS: Final = 10


class Snapshot(NamedTuple):
    """What a queue holds."""

    start: float
    """Redis' time, Unix seconds."""
    arrivals: list[Arrival]
    """Each stretch's tasks fall due at its end: never early."""
    later: int
    """Tasks that fall due after all that."""
    step_ms: int
    """How wide the widest stretch is that holds tasks."""


class _Stretch(NamedTuple):
    start_ms: int
    end_ms: int
    tasks: int


def take(counts: Counter, until_ms: int, handler_seconds: float) -> Snapshot:
    """Count what falls due in the next `until_ms`. What is overdue or in flight now is due at the start."""
    first = counts()
    start_ms, budget = first.now_ms, BUDGET
    found = [_Stretch(0, until_ms, _counted(counts, [until_ms], start_ms)[until_ms] - first.overdue)]
    parts = FIRST_PARTS
    while edges := [edge for each in found for edge in _edges(each, parts)]:
        budget -= len(edges)
        if budget < 0:
            break
        found = _refined(found, _counted(counts, edges, start_ms), first.overdue)
        parts = PARTS
    arrivals = [
        Arrival(each.end_ms / 1000, handler_seconds, tasks=each.tasks) for each in found if each.tasks
    ]
    now = first.overdue + first.processing
    if now:
        arrivals.insert(0, Arrival(0.0, handler_seconds, tasks=now))
    return Snapshot(
        start=start_ms / 1000,
        arrivals=arrivals,
        later=max(0, first.scheduled - sum(each.tasks for each in found)),
        step_ms=max(FINEST_MS, *(each.end_ms - each.start_ms for each in found if each.tasks), 0),
    )


def _edges(each: _Stretch, parts: int) -> list[int]:
    """Return where to cut a stretch: nowhere, if it is empty or fine enough."""
    width = each.end_ms - each.start_ms
    if each.tasks <= 0 or width <= FINEST_MS:
        return []
    parts = min(parts, -(-width // FINEST_MS))
    return [each.start_ms + width * part // parts for part in range(1, parts)]


def _counted(counts: Counter, edges: Sequence[int], start_ms: int) -> dict[int, int]:
    """Return how many tasks fall due until each edge, those included that were due at the start."""
    found: dict[int, int] = {}
    for at in range(0, len(edges), AT_ONCE):
        some = edges[at : at + AT_ONCE]
        answer = counts(instants_ms=[start_ms + edge for edge in some])
        for edge in some:
            # An edge that has passed meanwhile: the tasks before it are among those overdue.
            found[edge] = answer.overdue + answer.due_by[start_ms + edge]
    return found


def _refined(stretches: Iterable[_Stretch], counted: dict[int, int], overdue: int) -> list[_Stretch]:
    """Cut stretches at the edges; a queue in motion must not make a count negative, or lose what was counted."""
    edges = sorted(counted)
    found: list[_Stretch] = []
    before, at = 0, 0
    for each in stretches:
        start, done = each.start_ms, 0
        while at < len(edges) and edges[at] < each.end_ms:
            upto = min(max(counted[edges[at]] - overdue - before, done), each.tasks)
            found.append(_Stretch(start, edges[at], upto - done))
            start, done, at = edges[at], upto, at + 1
        found.append(_Stretch(start, each.end_ms, each.tasks - done))
        before += each.tasks
    return found

"""What pods' handlers did, by Redis' own clock, and how every task of a test is accounted for."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.node.recorder import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis import Redis


class Entry(NamedTuple):
    """One line of the ledger."""

    event: str
    id: str
    token: int
    attempt: int
    due_ms: int
    pod: str
    at_ms: int


def entries(redis: Redis) -> list[Entry]:
    """All that handlers wrote so far, in the order it happened."""
    lines: Any = redis.lrange(LEDGER, 0, -1)
    return [_entry(*line.split()) for line in lines]


def _entry(event: str, task: str, token: str, attempt: str, *more: str) -> Entry:
    due_ms, pod, at_ms = more
    return Entry(event, task, int(token), int(attempt), int(due_ms), pod, int(at_ms))


def of(event: str, ledger: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries of one kind, by task."""
    found = defaultdict(list)
    for entry in ledger:
        if entry.event == event:
            found[entry.id].append(entry)
    return found


def check_task(runs: list[Entry], *, charged: int, task: str) -> None:
    """Never early, a greater token each time, and an attempt charged as often as expected.

    An attempt stays the same when the run before was handed back, and is the next after a crash. The last crash of a
    dead letter has no run after it, so it is not among `charged`.
    """
    early = [run for run in runs if run.at_ms < run.due_ms]
    assert not early, f"{task} started early: {early}"
    assert [each for each in pairwise(runs) if each[0].token >= each[1].token] == [], f"{task}: {runs}"
    steps = [after.attempt - before.attempt for before, after in pairwise(runs)]
    assert runs[0].attempt == 1, runs
    assert set(steps) <= {0, 1}, f"{task}: {runs}"
    assert sum(steps) == charged, f"{task}: attempts charged {sum(steps)}, not {charged}: {runs}"

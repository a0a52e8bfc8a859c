"""One task as a value, and how it ends, waits, crashes and dies. Pure; verbs.py and leases.py use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tests.histories.history import FAR, Parsed, Span, exactly, later, meet, plus

if TYPE_CHECKING:
    from collections.abc import Iterator

ZERO: Final = (0, 0)
ENTRY: Final = re.compile(r"(\d+) (\d+) (?:@(\d+) )?(?:~(\d+):(\d+):(\d+) )?(.*)", re.DOTALL)
WAITING: Final = frozenset({"delayed", "retry", "suspect", "parked"})


class Follow(NamedTuple):
    """What takes the place of a task in flight when it ends."""

    body: str
    due: Span
    latest: Span | None


class Life(NamedTuple):
    """The task; without a home there is none."""

    home: str = ""  # delayed, retry, suspect, parked, processing or dlq
    body: str = ""
    due: Span = ZERO  # at the end of its envelope
    latest: Span | None = None  # due time that a debounced task may get
    deadline: int | None = None  # ms after `due`
    at: Span = ZERO  # its score: due time, token of a suspect's run, lease expiry, or time of death
    deferred: bool = False  # the lease waits for a verdict
    token: Span = ZERO
    claim: str = ""  # claimer and number
    apart: bool = False  # the lease is of an isolated run
    failures: int = 0
    crashes: int = 0
    error: str = ""
    counted: bool = False  # it has an entry in `attempts`
    kept: Span = ZERO  # due time in there
    alone: int = 0
    group: Span = ZERO
    size: int = 0
    story: str = ""  # of its death
    follow: Follow | None = None
    cancelling: bool = False  # its run is to be cancelled

    @property
    def kept_due(self) -> Span:
        return later(self.due, self.kept)


NOTHING: Final = Life()
UNTRIED: Final[dict[str, Any]] = {
    "failures": 0,
    "crashes": 0,
    "error": "",
    "counted": False,
    "kept": ZERO,
    "alone": 0,
    "group": ZERO,
    "size": 0,
}
IDLE: Final[dict[str, Any]] = {"deferred": False, "token": ZERO, "claim": "", "apart": False}
Answers: TypeAlias = "Iterator[tuple[Any, Life]]"


def expired(life: Life, at: Span) -> Life | None:
    """Return the task after its deadline, which any claim ends, or expire(); None if that is not possible."""
    if life.home not in WAITING or life.deadline is None:
        return None
    late = meet((life.due[0] + life.deadline + 1, FAR), at)
    if late is None:
        return None
    last = f", last error: {life.error}" if life.error else ""
    return dead(life, late, f"expired missed its deadline{last}")


# how tasks end, wait and die


def ended(life: Life) -> Life:
    """A task has ended: its follow-up takes its place, if there is one."""
    if life.follow is None:
        return NOTHING
    body, due, latest = life.follow
    return Life("delayed", body, due, latest, life.deadline, due)


def dead(life: Life, at: Span, why: str) -> Life:
    if life.follow:
        return ended(life)
    story = f"{life.failures} {life.crashes} {why}"
    return life._replace(home="dlq", at=at, story=story, **UNTRIED, **IDLE)


def burial(life: Life, at: Span, why: str) -> tuple[str, Life]:
    return "superseded" if life.follow else "buried", dead(life, at, why)


def put_back(life: Life, due: Span) -> Life:
    if life.apart:
        return life._replace(home="suspect", at=life.group, **IDLE)
    return life._replace(home="retry" if life.counted else "delayed", at=due, **IDLE)


def crash(life: Life, at: Span, max_crashes: int) -> tuple[str, Life]:
    if life.cancelling:
        return "cancelled", ended(life)
    alone = life.alone + (life.apart and life.size == 1)
    crashed = life._replace(crashes=life.crashes + 1, alone=alone)
    if alone >= max_crashes:
        return burial(crashed, at, f"crashes {life.error}")
    if not life.apart:
        crashed = crashed._replace(group=ZERO, size=0)
    score = life.group if life.apart else life.token
    return "reclaimed", crashed._replace(home="suspect", at=score, counted=True, **IDLE)


def due_at(when: str, at: Span) -> Span:
    asked = plus(at, int(when)) if when.startswith("+") else exactly(int(when))
    return later(asked, at)


def splits(when: str, at: Span) -> list[Span]:
    """Split the time at an absolute due time, so that either all of it is before it or nothing."""
    asked = int(when)
    if when.startswith("+") or not at[0] < asked <= at[1]:
        return [at]
    return [(at[0], asked - 1), (asked, at[1])]


# what replies show of it


def wrapped(life: Life, envelope: Parsed) -> Life | None:
    """The task if this is its envelope."""
    due, latest = meet(life.due, exactly(envelope.due)), life.latest
    if envelope.latest is not None and latest is not None:
        latest = meet(latest, exactly(envelope.latest))
    same = life.body == envelope.body and (latest is None) == (envelope.latest is None)
    return life._replace(due=due, latest=latest) if due and same else None


def entered(life: Life, entry: str) -> Life | None:
    """The task if this is its entry in `attempts`."""
    if not entry or not life.counted:
        return life if not entry and not life.counted else None
    match = ENTRY.fullmatch(entry)
    assert match, entry
    failures, crashes, kept, alone, group, size = (int(each or 0) for each in match.groups()[:6])
    found = (failures, crashes, alone, size, match[7])
    due, mark = meet(life.kept, exactly(kept)), meet(life.group, exactly(group))
    if (
        due is None
        or mark is None
        or found != (*(life.failures, life.crashes, life.alone, life.size, life.error),)
    ):
        return None
    return life._replace(kept=due, group=mark)


def missed(life: Life, at: Span) -> bool:
    """Whether its deadline has certainly passed."""
    return life.deadline is not None and at[0] > life.due[1] + life.deadline

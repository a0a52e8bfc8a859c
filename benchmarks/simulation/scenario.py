"""Made-up tasks with names, so that one can try at once. Pure; what is random comes from a seed.

Not here: tasks of a file (trace.py) or of a queue (snapshot.py).
"""

from __future__ import annotations

import re
from math import pi, sin
from random import Random
from typing import TYPE_CHECKING, Final

from delayq.contract.problems import quote

from benchmarks.simulation.tasks import MOST_TASKS, Arrival, TooMany

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT: Final = "spike:2000@60s/500ms"
DAY_SECONDS: Final = 86_400.0
RUSH_SECONDS: Final = 9 * 3600.0
RUSH_SHARE: Final = 0.1
KNOWN_SECONDS: Final = 3600.0
SLOT_SECONDS: Final = 60.0
SWING: Final = 9 / 11
HANDLER_SECONDS: Final = 0.5

HELP: Final = (
    "spike:2000@60s/500ms (tasks due at one instant, after how long, handler time); "
    "steady:100/s@10m/500ms (a rate, for how long, handler time); "
    "poisson:100/s@10m/500ms (the same by chance, and scheduled only when due); "
    "daily:200000/500ms (a day: most at noon, a tenth of all at 09:00); several with + between them"
)

_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER: Final = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_TIME: Final = re.compile(rf"({_NUMBER})(ms|s|m|h)")
_TEXT: Final = re.compile(
    rf"(?P<name>[a-z]+)(?::(?P<number>{_NUMBER})(?:/(?P<unit>[smh]))?)?"
    rf"(?:@(?P<span>{_NUMBER}(?:ms|s|m|h)))?(?:/(?P<handler>{_NUMBER}(?:ms|s|m|h)))?"
)


def scenario(text: str, *, handler_seconds: float = HANDLER_SECONDS, seed: int = 0) -> list[Arrival]:
    """Make the tasks of a scenario; ValueError says what was expected.

    `handler_seconds` is for a text that says nothing of it.
    """
    parts = text.split("+")
    if len(parts) > 1:
        return [each for part in parts for each in scenario(part, handler_seconds=handler_seconds, seed=seed)]
    match = _TEXT.fullmatch(text)
    made = None if match is None else _made(match, seed)
    if match is None or made is None:
        raise ValueError(f"expected {HELP}; got {quote(text)}")
    handler = _seconds(match["handler"], handler_seconds)
    return [each._replace(handler_seconds=handler) for each in made]


def _made(match: re.Match[str], seed: int) -> Iterator[Arrival] | None:
    name, number, unit = match["name"], match["number"], match["unit"]
    amount = None if number is None else float(number)
    span = match["span"]
    if name in ("spike", "daily") and unit is None:
        tasks = _at_most(2000 if name == "spike" else 200_000) if amount is None else _at_most(amount)
        if name == "daily":
            return None if span else _day(tasks, Random(seed))
        return iter([Arrival(_seconds(span, 60.0), 0.0, tasks=tasks)])
    if name not in ("steady", "poisson") or (amount is not None and not (unit and amount)):
        return None
    rate = 100.0 if amount is None else amount / _UNITS[unit]
    until = _seconds(span, 600.0)
    tasks = _at_most(rate * until)
    if name == "steady":
        return (Arrival((each + 1) / rate, 0.0) for each in range(tasks))
    return _by_chance(rate, until, Random(seed))


def _at_most(tasks: float) -> int:
    if tasks > MOST_TASKS:
        raise TooMany(f"expected at most {MOST_TASKS:,} tasks, got {tasks:,.0f}")
    return int(tasks)


def _by_chance(rate: float, until: float, random: Random) -> Iterator[Arrival]:
    at = random.expovariate(rate)
    while at < until:
        yield Arrival(at, 0.0, scheduled=at)
        at += random.expovariate(rate)


def _day(count: int, random: Random) -> Iterator[Arrival]:
    """Most at noon, fewest at midnight, and every minute its share; each is known an hour before."""
    rush = int(count * RUSH_SHARE)
    count -= rush
    yield Arrival(RUSH_SECONDS, 0.0, RUSH_SECONDS - KNOWN_SECONDS, rush)
    done = 0.0
    for minute in range(int(DAY_SECONDS / SLOT_SECONDS)):
        at = minute * SLOT_SECONDS
        before, done = done, count * _share((at + SLOT_SECONDS) / DAY_SECONDS)
        for _ in range(int(done) - int(before)):
            due = at + random.random() * SLOT_SECONDS
            yield Arrival(due, 0.0, due - KNOWN_SECONDS)


def _share(day: float) -> float:
    """Return how much of a day's tasks have come after that part of it: at midnight a tenth as many as at noon."""
    return day - SWING * sin(2 * pi * day) / (2 * pi)


def _seconds(text: str | None, otherwise: float) -> float:
    match = _TIME.fullmatch(text or "")
    return float(match[1]) * _UNITS[match[2]] if match else otherwise

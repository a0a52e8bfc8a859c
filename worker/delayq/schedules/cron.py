"""The times of a cron expression in a time zone.

cronsim reads the expression and iterates over wall-clock times without a zone. Here each of them becomes an instant, or
two, or none: where clocks go forward, some wall-clock times do not exist, and where they go back, some exist twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from cronsim import CronSim
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 -- wall-clock times and UTC are computed without a zone
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
LAST_YEAR: Final = 2200
"""cronsim gives up after 50 years without a match, and datetime has an end."""

_STEPPED: Final = re.compile(r"\b([0-9A-Z]+)-([0-9A-Z]+)/0*[1-9][0-9]*(?=[ ,]|$)")
_NUMBERS: Final = {
    **{name: number for number, name in enumerate(SYMBOLIC_DAYS)},
    **{name: number for number, name in enumerate(SYMBOLIC_MONTHS, 1)},
}

NOT, GAP, SECOND_TIME = 0, 1, 2


class Nominal(NamedTuple):
    """One time of a schedule."""

    at_ms: int
    """Unix time, ms."""
    moved: int = NOT
    """GAP: its wall-clock time does not exist, and it moved to the end of the gap. SECOND_TIME: of two such times."""
    wall: datetime | None = None
    """The wall-clock time of the expression, without a zone; None for schedules without an expression."""


class Cron:
    """A cron expression, a zone, and what happens where clocks change."""

    def __init__(self, expression: str, zone: ZoneInfo, *, after_gap: bool, twice: bool) -> None:
        """`after_gap`: run at the end of a gap. `twice`: run at both times. CronSimError for an invalid expression."""
        self._expression, self._zone = _STEPPED.sub(_stepped, expression.upper()), zone
        CronSim(self._expression, EPOCH)
        self._wanted = {GAP: after_gap, SECOND_TIME: twice}

    def after(self, after_ms: int) -> Iterator[Nominal]:
        """Yield the times after an instant, in order, each instant once."""
        waiting: list[Nominal] = []
        last = after_ms
        for wall in CronSim(self._expression, self._wall_before(after_ms)):
            if wall.year > LAST_YEAR:
                return
            found = self._instants(wall)
            # No later wall-clock time has an earlier instant than the first one of this.
            while waiting and waiting[0].at_ms < found[0].at_ms:
                nominal = heappop(waiting)
                if nominal.at_ms > last:
                    last = nominal.at_ms
                    yield nominal
            for nominal in found:
                if nominal.moved == NOT or self._wanted[nominal.moved]:
                    heappush(waiting, nominal)

    def _wall_before(self, at_ms: int) -> datetime:
        """Return a wall-clock time before all those whose instants are after this one."""
        at = datetime.fromtimestamp(at_ms // 1000, UTC)
        wall, before = at.astimezone(self._zone), (at - DAY).astimezone(self._zone)
        back = (before.utcoffset() or timedelta()) - (wall.utcoffset() or timedelta())
        # Shortly before clocks go back, too: the repeated wall-clock times are earlier than this one.
        after = (at + DAY).astimezone(self._zone).utcoffset() or timedelta()
        back = max(back, (wall.utcoffset() or timedelta()) - after, timedelta())
        return wall.replace(tzinfo=None, fold=0) - back - SECOND

    def _instants(self, wall: datetime) -> tuple[Nominal, ...]:
        """Return one instant, or two where clocks go back, the earlier first."""
        first, second = (self._ms(wall.replace(fold=fold)) for fold in (0, 1))
        if first == second:
            return (Nominal(first, NOT, wall),)
        if first < second:
            return Nominal(first, NOT, wall), Nominal(second, SECOND_TIME, wall)
        return (Nominal(self._transition(second, first), GAP, wall),)

    def _ms(self, wall: datetime) -> int:
        offset = wall.replace(tzinfo=self._zone).utcoffset() or timedelta()
        return (wall.replace(fold=0) - offset - EPOCH) // SECOND * 1000

    def _transition(self, before_ms: int, after_ms: int) -> int:
        """Return the instant between these two at which the zone's offset changes."""
        low, high = before_ms // 1000 - 1, after_ms // 1000

        def offset(second: int) -> timedelta | None:
            return datetime.fromtimestamp(second, self._zone).utcoffset()

        old = offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if offset(middle) == old:
                low = middle
            else:
                high = middle
        return high * 1000


def _stepped(found: re.Match[str]) -> str:
    """Leave out the step of a range of one: cronsim reads 38-38/4 as 38/4, from 38 on; Debian's cron runs it at 38."""
    first, last = (_NUMBERS.get(end, end) for end in found.groups())
    return f"{found[1]}-{found[2]}" if str(first).lstrip("0") == str(last).lstrip("0") else found[0]

"""When a task that a SQL guard puts off comes again: not together with all that were put off together."""

from __future__ import annotations

import random
from typing import Final

from delayq.errors import GuardBusy, GuardUnavailable

BUSY_MS: Final = 1000
AWAY_MS: Final = 2000


def spread_ms(delay_ms: int, rand: float) -> int:
    """Return the delay, up to a fifth more or less; `rand` is in [0, 1). 1000, 0.75 → 1100."""
    return round(delay_ms * (0.8 + 0.4 * rand))


def busy(reason: str) -> GuardBusy:
    """Say that somebody else has what the task needs."""
    return GuardBusy(reason, delay_ms=spread_ms(BUSY_MS, random.random()))  # noqa: S311 -- spreads, guards nothing


def away(where: str, why: str) -> GuardUnavailable:
    """Say that the database is not there for us."""
    return GuardUnavailable(where, why, delay_ms=spread_ms(AWAY_MS, random.random()))  # noqa: S311 -- as above

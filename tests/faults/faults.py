"""The faults of the table, in its order."""

from __future__ import annotations

from typing import Final

from tests.faults import clocks, cuts, kills, restarts, stops

FAULTS: Final = {
    fault.name: fault
    for fault in (
        kills.BEFORE,
        kills.DURING,
        kills.AFTER,
        stops.WORKER,
        restarts.REDIS,
        stops.REDIS,
        restarts.DATABASE,
        cuts.REDIS,
        cuts.DATABASE,
        clocks.WORKER_FORWARD,
        clocks.WORKER_BACK,
        clocks.REDIS_FORWARD,
        clocks.REDIS_BACK,
    )
}

"""Alive as long as a restart would not help; ready when this operator works or stands by."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from delayq_operator.runtime.health import HUNG_SECONDS, LISTS_DEAD_SECONDS, STUCK_SECONDS, Health

HEALTHY: dict[str, Any] = {
    "unanswered_seconds": 0.0,
    "leads": True,
    "idle_seconds": 0.0,
    "kopf_seconds": 0.0,
    "longest_seconds": 0.0,
    "synced": True,
    "lag_seconds": 0.0,
}


def probe(**seen: Any) -> Health:  # noqa: ANN401 -- any attribute
    """A healthy leader, but for what is given; one object stands for all parts."""
    part: Any = SimpleNamespace(**HEALTHY | seen)
    part.tried_at, synced = time.monotonic() - part.idle_seconds, asyncio.Event()
    if part.synced:
        synced.set()
    part.synced = synced
    return Health(part, part, part, part, lag_seconds=part.lag_seconds)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"idle_seconds": LISTS_DEAD_SECONDS + 1}, "nothing was listed for 241 s"),
        ({"kopf_seconds": STUCK_SECONDS + 1}, "the event loop of kopf was 61 s late"),
        ({"lag_seconds": STUCK_SECONDS + 1}, "the event loop was 61 s late"),
        ({"longest_seconds": HUNG_SECONDS + 1}, "a reconciliation has gone on for 601 s"),
    ],
)
def test_what_a_restart_would_repair_ends_it(seen: dict[str, float], why: str) -> None:
    assert probe(**seen).failures() == [why]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({}, []),
        ({"leads": False, "synced": False}, []),  # a standby
        ({"synced": False}, ["not everything was listed yet"]),
        ({"unanswered_seconds": 300, "leads": False}, ["the Lease could not be read"]),
    ],
)
def test_a_leader_that_has_seen_everything_is_ready_and_nothing_here_is_a_reason_to_restart(
    seen: dict[str, Any], why: list[str]
) -> None:
    found = probe(**seen)
    assert (found.failures(), found.unready()) == ([], why)

"""A coroutine handler that has signals ignored does not keep its worker from stopping."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.process.fleet import said, until, wait_said

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_whose_handler_had_signals_ignored_still_stops(
    new_fleet: NewFleet, number: signal.Signals
) -> None:
    """Each time that a handler does so."""
    fleet = new_fleet()
    worker = fleet.start("worker")
    with fleet.client() as client:
        for times in (1, 2):
            client.schedule({"do": "ignore_signals"}, delay_ms=0)
            until(lambda: len(said(worker, "signal_handler_restored")) == 2 * times, "restored")  # noqa: B023
    worker.send(number)
    wait_said(worker, "stopped")
    assert worker.wait() == 0

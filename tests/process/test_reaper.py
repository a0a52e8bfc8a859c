"""The reaper as a CronJob runs it: one pass, and it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import State

from tests.process.fleet import said, until, wait_said
from tests.processes import delayq

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet


def test_a_reaper_that_finds_redis_hanging_makes_its_pass_when_redis_answers(new_fleet: NewFleet) -> None:
    """It reclaims the lease of a dead worker, and deletes the history that the document no longer asks for."""
    history = {"retention": {"finished": {"seconds": 3600}}}
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": 1}} | history)
    worker = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({"do": "sleep", "seconds": 60}, delay_ms=0, task_id="held")
        client.schedule({}, delay_ms=0, task_id="a")
        until(lambda: (view := client.get("a")) and view.state is State.DONE, "the task is done")
        found = client.get("a")
        assert found is not None
        assert (found.attempts, found.finished_ms) == (1, found.at_ms)
        assert client.schedule({}, delay_ms=0, task_id="a", if_exists="keep").outcome == "kept"
        fleet.wait_entry("start", "held")
        worker.kill()
        until(lambda: client.counts().lapsed, "its lease runs out")
        fleet.change(retention=None)
        fleet.server.pause()
        reaper = delayq("reaper", str(fleet.config), "--redis", fleet.server.url, "--port", "0")
        wait_said(reaper, "redis_unavailable")
        assert reaper.alive
        fleet.server.resume()
        assert reaper.wait() == 0
        (reaped,) = said(reaper, "reaped")
        assert (reaped["unfinished"], reaped["reclaimed"], reaped["trimmed"]) == ([], 1, 1)
        assert not redis.zcard(fleet.keys.processing)
        assert client.get("a") is None
        assert not redis.exists(fleet.keys.finished, fleet.keys.finished_info)

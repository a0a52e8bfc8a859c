"""The reaper as a CronJob runs it: one pass, and it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.process.fleet import said, until, wait_said
from tests.processes import delayq

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet


def test_a_reaper_that_finds_redis_hanging_makes_its_pass_when_redis_answers(new_fleet: NewFleet) -> None:
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": 1}})
    worker = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({"do": "sleep", "seconds": 60}, delay_ms=0, task_id="held")
        fleet.wait_entry("start", "held")
        worker.kill()
        until(lambda: client.counts().lapsed, "its lease runs out")
        fleet.server.pause()
        reaper = delayq("reaper", "--config", str(fleet.config), "--redis", fleet.server.url, "--port", "0")
        wait_said(reaper, "redis_unavailable")
        assert reaper.alive
        fleet.server.resume()
        assert reaper.wait() == 0
        (reaped,) = said(reaper, "reaped")
        assert (reaped["unfinished"], reaped["reclaimed"]) == ([], 1)
        assert not redis.zcard(fleet.keys.processing)

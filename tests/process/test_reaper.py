"""The reaper as a CronJob runs it: one pass, and it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from delayq import State

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


def test_a_worker_writes_the_history_and_the_reaper_of_a_document_without_one_deletes_it(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet({"retention": {"finished": {"seconds": 3600}}})
    fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({}, delay_ms=0, task_id="a")
        until(lambda: (view := client.get("a")) and view.state is State.DONE, "the task is done")
        found = client.get("a")
        assert found is not None
        assert (found.attempts, found.finished_ms) == (1, found.at_ms)
        assert client.schedule({}, delay_ms=0, task_id="a", if_exists="keep").outcome == "kept"
        document = yaml.safe_load(fleet.config.read_text())
        del document["spec"]["retention"]
        fleet.config.write_text(yaml.safe_dump(document))
        reaper = delayq("reaper", "--config", str(fleet.config), "--redis", fleet.server.url, "--port", "0")
        assert reaper.wait() == 0
        assert said(reaper, "reaped")[0]["trimmed"] == 1
        assert client.get("a") is None
        assert not redis.exists(fleet.keys.finished, fleet.keys.finished_info)

"""/healthz, /readyz and /metrics of running processes, and of loops that are stuck."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from delayq.contract import metrics as m
from delayq.service.loop import STUCK_AFTER_SECONDS
from delayq.service.probes import Probes
from prometheus_client.parser import text_string_to_metric_families

from tests.process.fleet import status, until, url_of, wait_said

if TYPE_CHECKING:
    from delayq.contract.metrics import Metric
    from delayq.service.http_server import Response
    from delayq.service.loop import Loop
    from prometheus_client import Metric as Family

    from tests.process.fleet import NewFleet
    from tests.processes import Process

BY_ALL = {m.REDIS_ERRORS, m.LOOP_ERRORS}
BY_WORKER = {each for each in m.METRICS if each.name.startswith("delayq_worker_")} | BY_ALL
BY_SCANNER = set(m.METRICS) - BY_WORKER - {m.ERASED_SHARDS} | BY_ALL
# Told only while there is trouble, or a change of shards.
SELDOM = {m.REDIS_DOWN, m.SHARD_DOWN, *(each for each in m.METRICS if "_resharding_" in each.name)}
# What a histogram or counter adds to the labels or the name is Prometheus' own.
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "_created")


def scraped(process: Process) -> dict[str, Family]:
    text = process.wait_http(url_of(process, "metrics")).decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    return {name: each for name, each in families.items() if name.startswith("delayq_")}


def check_family(metric: Metric, family: Family) -> None:
    """All have values; but some are told only in special times."""
    assert family.documentation == metric.help
    assert family.type == metric.kind
    assert bool(family.samples) == (metric not in SELDOM), f"{metric.name}: {family.samples}"
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == set(metric.labels)


@pytest.mark.parametrize(("role", "expected"), [("worker", BY_WORKER), ("scanner", BY_SCANNER)])
def test_each_process_exports_its_metrics_and_is_ready_while_redis_is(
    new_fleet: NewFleet, role: str, expected: set[Metric]
) -> None:
    fleet = new_fleet({"guard": {"redisLock": {}}})  # whose metrics have no values without one
    process = fleet.start(role)  # type: ignore[arg-type]
    assert status(process, "healthz") == 200
    fleet.server.kill()
    until(lambda: status(process, "readyz") == 503, "it is not ready without Redis")
    assert status(process, "healthz") == 200, "a restart would not bring Redis back"
    assert status(process, "metrics") == 200
    fleet.server.restart()
    until(lambda: status(process, "readyz") == 200, "it is ready again", timeout_s=10)
    if role == "scanner":  # an answer is kept for a second, and the last one was without Redis
        until(lambda: bool(scraped(process)["delayq_tasks"].samples), "it has measured again")
    else:  # any loop that has reached Redis makes it ready, the claim perhaps a moment later
        until(lambda: first_claim(process), "Redis answers a claim")
    families = scraped(process)
    by_name = {metric.name.removesuffix("_total"): metric for metric in expected}
    assert set(families) == set(by_name)
    for name, metric in by_name.items():
        check_family(metric, families[name])


def test_a_reaper_is_ready_while_redis_is(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    process = fleet.start("reaper")
    fleet.server.kill()
    until(lambda: status(process, "readyz") == 503, "it is not ready without Redis")
    fleet.server.restart()
    until(lambda: status(process, "readyz") == 200, "it is ready again")
    assert set(scraped(process)) == {each.name.removesuffix("_total") for each in BY_ALL}


@pytest.mark.parametrize("role", ["worker", "scanner", "reaper"])
def test_a_process_started_without_redis_waits_for_it(new_fleet: NewFleet, role: str) -> None:
    fleet = new_fleet()
    fleet.server.kill()
    process = fleet.start(role, ready=False)  # type: ignore[arg-type]
    assert status(process, "readyz") == 503
    wait_said(process, "redis_unavailable")
    fleet.server.restart()
    until(lambda: status(process, "readyz") == 200, "it is ready", timeout_s=10)


def first_claim(process: Process) -> list[float]:
    return [each.value for each in scraped(process)["delayq_worker_first_claim_timestamp_seconds"].samples]


def test_a_worker_tells_when_redis_answered_its_first_claim_and_nothing_before(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    fleet.server.kill()
    process = fleet.start("worker", ready=False)
    wait_said(process, "redis_unavailable")
    assert first_claim(process) == []
    before = time.time()
    fleet.server.restart()
    until(lambda: first_claim(process), "Redis answers a claim", timeout_s=10)
    [told] = first_claim(process)
    until(lambda: status(process, "readyz") == 200, "it is ready", timeout_s=10)
    assert before < told < time.time()
    with fleet.client() as client:
        client.schedule({}, task_id="later", delay_ms=0)
    fleet.wait_entry("end", "later")
    assert first_claim(process) == [told]


def test_a_star_serves_by_ipv4_and_by_ipv6(new_fleet: NewFleet) -> None:
    process = new_fleet().start("scanner", "--host", "*")
    url = url_of(process, "readyz")
    assert process.wait_http(url) == process.wait_http(url.replace("127.0.0.1", "[::1]")) == b"ok\n"


@dataclass
class Named:
    """A service's name is all that probes want of it."""

    name: str


@dataclass
class StillLoop:
    """A loop that moves only when told to."""

    service: Named
    stuck_seconds: float = 0.0
    works: bool = True
    group: str | None = None
    part: bool = False

    def ready(self, _within_seconds: float) -> bool:
        return self.works


@dataclass
class Looped:
    """A process' loops are all that probes want of it."""

    loops: list[Loop]


def probes(*loops: StillLoop) -> Probes:
    async def nothing() -> list[object]:
        return []

    return Probes(Looped(cast("list[Loop]", list(loops))), nothing)  # type: ignore[arg-type]


async def ask(probe: Probes, name: str) -> tuple[int, str | bytes]:
    response: Response = await getattr(probe, name)({})
    return response.status, response.body


async def test_healthz_names_the_loop_that_is_stuck() -> None:
    fine, stuck = StillLoop(Named("fine")), StillLoop(Named("hangs"), STUCK_AFTER_SECONDS + 1)
    assert await ask(probes(fine), "healthz") == (200, "ok\n")
    assert await ask(probes(fine, stuck), "healthz") == (500, "stuck: hangs\n")


async def test_readyz_names_the_loop_that_fails() -> None:
    fine, failing = StillLoop(Named("fine")), StillLoop(Named("fails"), works=False)
    assert await ask(probes(fine), "readyz") == (200, "ok\n")
    assert await ask(probes(fine, failing), "readyz") == (503, "not ready: fails\n")


async def test_a_process_is_ready_while_one_lane_works_though_another_fails() -> None:
    """But not while something fails that is for all of them, or every shard group does."""
    one, other = StillLoop(Named("one"), group="1"), StillLoop(Named("other"), group="2")
    two = StillLoop(Named("two"), works=False, group="2")
    every = StillLoop(Named("every"))
    assert await ask(probes(every, one, other, two), "readyz") == (200, "ok\n")
    one.works = False
    assert await ask(probes(every, one, other, two), "readyz") == (503, "not ready: one, two\n")
    one.works, every.works = True, False
    assert await ask(probes(every, one, other, two), "readyz") == (503, "not ready: every\n")


async def test_a_process_is_ready_while_one_part_of_a_lane_works_and_all_that_is_for_the_whole_of_it() -> (
    None
):
    """One shard with a broken key must not hold up a rollout of scanners, and none that works must."""
    lead = StillLoop(Named("lead"), group="all")
    one, two = (StillLoop(Named(name), group="all", part=True) for name in ("scan-0", "scan-1"))
    one.works = False
    assert await ask(probes(lead, one, two), "readyz") == (200, "ok\n")
    two.works = False
    assert await ask(probes(lead, one, two), "readyz") == (503, "not ready: scan-0, scan-1\n")
    two.works, lead.works = True, False
    assert await ask(probes(lead, one, two), "readyz") == (503, "not ready: lead\n")

"""What scanners tell of their Redis: leaders and standbys, with Redis there, gone, hanging, and differently set."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from delayq import NewTask
from delayq.contract.metrics import DURABILITY_RISKS
from prometheus_client.parser import text_string_to_metric_families

from tests.process.fleet import status, until, url_of, wait_said
from tests.servers import USER

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet
    from tests.processes import Process

RISKS = set(DURABILITY_RISKS)


def samples(
    process: Process, query: str = "", path: str = "metrics"
) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Everything one scrape brings, by name; with a query, from the port for that."""
    url = url_of(process, path) if not query else horizons_url(process, query)
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(process.wait_http(url).decode())
    }


def horizons_url(process: Process, query: str) -> str:
    port = wait_said(process, "started", timeout_s=60)["horizons_port"]
    return f"http://127.0.0.1:{port}/metrics{query}"


def up(process: Process) -> float:
    [(_, value)] = samples(process)["delayq_redis_up"]
    return value


def risks(process: Process) -> dict[str, float]:
    return {labels["risk"]: value for labels, value in samples(process)["delayq_durability_risk"]}


def due_within(process: Process, query: str = "", path: str = "metrics") -> dict[str, float]:
    found = samples(process, query, path)["delayq_due_within_tasks"]
    return {labels["horizon_seconds"]: value for labels, value in found}


def refused(process: Process, query: str) -> str:
    with pytest.raises(HTTPError) as refusal:
        urlopen(horizons_url(process, f"?{query}"), timeout=10)  # noqa: S310  our own process
    assert refusal.value.code == 400
    return refusal.value.read().decode()


def test_a_scrape_is_told_the_horizons_it_asks_for_and_only_where_more_falls_due(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    process = fleet.start("scanner", "--horizons-port", "0")
    delays = (1_000_000, 1_000_000, 1_000_000, 10_000_000, 10_000_000)
    with fleet.client() as client:
        client.schedule_many([NewTask(1, delay_ms=delay) for delay in delays])
    query = "?horizon=20000&horizon=500&horizon=2500.5&horizon=2000&horizon=1e6"
    assert due_within(process, query) == {"2000": 3, "20000": 5}
    assert due_within(process) == {"10": 0, "30": 0, "60": 0, "300": 0, "900": 0, "3600": 3}
    assert due_within(process, "?horizon=1&horizon=2") == {}
    assert len(due_within(process, path="metrics?horizon=20000")) == 6  # any pod may reach that port


def test_what_is_no_horizon_is_refused_with_a_sentence(new_fleet: NewFleet) -> None:
    process = new_fleet().start("scanner", "--horizons-port", "0")
    sentence = 'horizon: expected seconds above 0 and not above 31622400, got "soon"\n'
    assert refused(process, "horizon=10&horizon=soon") == sentence
    assert refused(process, "horizon=1&" * 129) == "horizon: expected at most 128 of them, got 129\n"
    assert status(process, "metrics?horizon=soon") == 200


def test_scrapes_that_come_together_cost_redis_one(new_fleet: NewFleet) -> None:
    """A hundred requests of one second ask Redis as often as a few: any pod may make them."""
    fleet = new_fleet()
    process = fleet.start("scanner")
    with fleet.server.client() as redis:

        def counted() -> int:
            return sum(
                each["calls"] for name, each in redis.info("commandstats").items() if "evalsha" in name
            )

        until(lambda: samples(process)["delayq_shard_leader"][0][1] == 1, "it leads")
        before, url = counted(), url_of(process, "metrics")
        with ThreadPoolExecutor(16) as pool:
            started = time.monotonic()
            list(pool.map(lambda _: process.wait_http(url), range(400)))
            lasted = time.monotonic() - started
        assert counted() - before < 30 + 20 * lasted  # of its own a scanner asks a few times a second


def test_a_standby_tells_of_redis_but_not_of_tasks(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    scanners = fleet.start_all("scanner", "scanner")
    told: list[dict[str, list[tuple[dict[str, str], float]]]] = []

    def one_leads() -> bool:
        told[:] = [samples(each) for each in scanners]
        return sorted(each["delayq_shard_leader"][0][1] for each in told) == [0, 1]

    until(one_leads, "one of them leads")
    led = [each["delayq_shard_leader"][0][1] for each in told]
    for leads, each in zip(led, told, strict=True):
        assert each["delayq_redis_up"] == [({"queue": fleet.queue}, 1)]
        assert {labels["risk"] for labels, _ in each["delayq_durability_risk"]} == RISKS
        assert each["delayq_redis_replicas"] == [({"queue": fleet.queue}, 0)]
        assert bool(each["delayq_tasks"]) == bool(each["delayq_suspect_tasks"]) == bool(leads)


def test_without_redis_there_is_a_zero_and_no_other_number(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    process = fleet.start("scanner")
    assert up(process) == 1
    fleet.server.kill()
    until(lambda: up(process) == 0, "it tells that Redis is away")
    told = samples(process)
    assert told["delayq_durability_risk"] == told["delayq_tasks"] == []
    assert told["delayq_redis_replicas"] == told["delayq_redis_clock_offset_seconds"] == []
    assert status(process, "healthz") == 200
    until(lambda: status(process, "readyz") == 503, "it is not ready")
    fleet.server.restart()
    until(lambda: up(process) == 1, "it tells that Redis is back")


def test_a_scanner_that_never_reached_redis_answers_too(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    fleet.server.kill()
    process = fleet.start("scanner", ready=False)
    assert up(process) == 0
    assert samples(process)["delayq_durability_risk"] == []


def test_a_scrape_ends_though_redis_hangs(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    scanners = fleet.start_all("scanner", "scanner")
    fleet.server.pause()
    try:
        for process in scanners:
            began = time.monotonic()
            until(lambda process=process: up(process) == 0, "it tells that Redis is away", timeout_s=15)  # type: ignore[misc]
            assert up(process) == 0
            assert time.monotonic() - began < 15
            began = time.monotonic()
            assert samples(process)["delayq_tasks"] == []
            assert time.monotonic() - began < 3
            assert status(process, "healthz") == 200
    finally:
        fleet.server.resume()
    until(lambda: all(up(each) == 1 for each in scanners), "they tell that Redis is back")


def test_risks_are_read_again_after_a_connect_and_not_at_every_scrape(new_fleet: NewFleet) -> None:
    fleet = new_fleet(config_get=True)
    process = fleet.start("scanner")
    with fleet.server.client() as redis:
        redis.config_set("appendonly", "yes")
        redis.config_set("appendfsync", "no")
        until(lambda: redis.info("persistence")["aof_rewrite_in_progress"] == 0, "the file is there")
    fleet.server.config["appendonly"], fleet.server.config["appendfsync"] = "yes", "no"
    fleet.server.config["maxmemory-policy"] = "allkeys-lru"
    fleet.server.restart()
    until(lambda: up(process) == 1 and risks(process)["evicts"] == 1, "it reads the settings again")
    found = {risk for risk, value in risks(process).items() if value}
    assert found == {"fsync_off", "evicts"}
    with fleet.server.client() as redis:
        redis.config_resetstat()
        for _ in range(10):
            risks(process)
        assert "cmdstat_info" not in redis.info("commandstats")


@pytest.mark.parametrize(("rights", "risk"), [((), "fsync_unknown"), (("-info",), "unknown")])
def test_questions_that_redis_refuses_are_named(
    new_fleet: NewFleet, rights: tuple[str, ...], risk: str
) -> None:
    fleet = new_fleet()
    with fleet.server.client() as redis:
        redis.execute_command("ACL", "SETUSER", USER, *rights)
    process = fleet.start("scanner")
    assert up(process) == 1
    assert {risk for risk, value in risks(process).items() if value} == {risk}


@pytest.mark.parametrize("offset_s", [-3600, 3600])
def test_the_clock_offset_is_that_of_redis_to_this_machine(new_fleet: NewFleet, offset_s: int) -> None:
    fleet = new_fleet(movable_clock=True)
    process = fleet.start("scanner")
    clock = fleet.server.clock
    assert clock is not None
    clock.set_ms(offset_s * 1000)
    [(_, found)] = samples(process)["delayq_redis_clock_offset_seconds"]
    assert abs(found - offset_s) < 60  # however slow the machine: half a round trip


def test_a_replica_that_is_missing_is_told_where_it_is_asked_for(new_fleet: NewFleet) -> None:
    fleet = new_fleet({"durability": {"confirm": "Replicated"}})
    process = fleet.start("scanner")
    assert {risk for risk, value in risks(process).items() if value} == {"replicas_missing", "fsync_unknown"}


def test_a_redis_that_wants_more_replicas_is_down_and_says_why(new_fleet: NewFleet) -> None:
    fleet = new_fleet(config={"min-replicas-to-write": "1"})
    process = fleet.start("scanner", ready=False)
    until(lambda: causes(process) == {"no_replicas"}, "it tells why")
    assert up(process) == 0


def causes(process: Process) -> set[str]:
    return {labels["cause"] for labels, value in samples(process)["delayq_redis_down"] if value}

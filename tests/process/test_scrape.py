"""What scanners report of their Redis: leaders and standbys, with Redis there, away, hanging, and differently set."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from delayq import NewTask
from delayq.contract.metrics import DURABILITY_RISKS
from delayq.protocol.keys import Keys

from tests.process.fleet import samples, status, until, url_of, wait_said
from tests.process.test_schedules import MINUTE_MS, apply
from tests.servers import PASSWORD, USER
from tests.topologies.secured import cut

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet
    from tests.processes import Process


def horizons_url(process: Process, query: str) -> str:
    return f"http://127.0.0.1:{wait_said(process, 'started')['horizons_port']}/metrics{query}"


def up(process: Process) -> float:
    [(_, value)] = samples(process)["delayq_redis_up"]
    return value


def cause(process: Process) -> str:
    """Why Redis does not serve; empty while it does."""
    causes = [labels["cause"] for labels, value in samples(process)["delayq_redis_down"] if value == 1]
    assert len(causes) <= 1
    return "".join(causes)


def risks(process: Process) -> set[str]:
    return {labels["risk"] for labels, value in samples(process)["delayq_durability_risk"] if value}


def due_within(process: Process, url: str) -> dict[str, float]:
    found = samples(process, url)["delayq_due_within_tasks"]
    return {labels["horizon_seconds"]: value for labels, value in found}


def due_kinds(process: Process, url: str) -> dict[str, float]:
    return {labels["kind"]: value for labels, value in samples(process, url)["delayq_due_kind_tasks"]}


def refused(process: Process, query: str) -> str:
    with pytest.raises(HTTPError) as refusal:
        urlopen(horizons_url(process, f"?{query}"), timeout=10)  # noqa: S310  our own process
    assert refusal.value.code == 400
    return refusal.value.read().decode()


def test_a_scrape_gets_the_horizons_it_asks_for_or_a_sentence_that_says_what_is_wrong(
    new_fleet: NewFleet,
) -> None:
    """On a port of its own: any pod may reach the other one."""
    fleet = new_fleet()
    process = fleet.start("scanner", "--horizons-port", "0")
    delays = (1_000_000, 1_000_000, 1_000_000, 10_000_000, 10_000_000)
    with fleet.client() as client:
        client.schedule_many([NewTask(1, delay_ms=delay) for delay in delays])
    query = "?horizon=20000&horizon=500&horizon=2500.5&horizon=2000&horizon=1e6"
    always = {"10": 0, "30": 0, "60": 0, "300": 0, "900": 0, "3600": 3}
    assert due_within(process, horizons_url(process, query)) == {"2000": 3, "20000": 5}
    assert due_within(process, horizons_url(process, "?horizon=1&horizon=2")) == {}
    assert due_kinds(process, horizons_url(process, query)) == {}
    assert due_kinds(process, horizons_url(process, "?horizon=1&kinds_within=2000")) == {"": 3}
    assert due_kinds(process, url_of(process, "metrics?horizon=1&kinds_within=2000")) == {}
    assert due_within(process, url_of(process, "metrics")) == always
    assert due_within(process, url_of(process, "metrics?horizon=20000")) == always
    sentence = 'horizon: expected seconds above 0 and not above 31622400, got "soon"\n'
    assert refused(process, "horizon=10&horizon=soon") == sentence
    assert refused(process, "horizon=1&kinds_within=").startswith("kinds_within: expected seconds")
    assert refused(process, "horizon=1&" * 129) == "horizon: expected at most 128 of them, got 129\n"
    assert status(process, "metrics?horizon=soon") == 200


def test_horizons_contain_occurrences_that_are_not_stored_yet_and_each_only_once(new_fleet: NewFleet) -> None:
    """Of a nightly rush of tomorrow, and of a schedule whose next minutes are stored."""
    fleet = new_fleet()
    process = fleet.start("scanner", "--horizons-port", "0")
    now_ms, horizons = fleet.server.now_ms(), (300, 36_000, 90_000)
    rush = datetime.fromtimestamp(now_ms // 1000, UTC) + timedelta(hours=20)
    query = "?" + "&".join(f"horizon={each}" for each in horizons)

    def is_exact() -> None:
        before_ms = fleet.server.now_ms()
        found = due_within(process, horizons_url(process, query))
        after_ms = fleet.server.now_ms()
        for horizon, reports in zip(horizons, (0, 0, 5), strict=True):
            polls = {(at + horizon * 1000) // MINUTE_MS - at // MINUTE_MS for at in (before_ms, after_ms)}
            assert found[str(horizon)] - reports in polls

    with fleet.client() as client, fleet.server.client() as redis:
        for number in range(5):
            apply(client, f"report-{number}", cron=f"{rush.minute} {rush.hour} * * *")
        apply(client, "poll", everySeconds=60)
        until(partial(redis.zcard, fleet.keys.delayed), "occurrences are created ahead")
        is_exact()
        removed = apply(client, "poll", everySeconds=60, task={"payload": "1"})
        until(lambda: redis.zcard(fleet.keys.delayed) >= removed, "occurrences are created again")
        assert redis.zcard(fleet.keys.delayed) <= 21, "no more than before: a scrape has no effect"
        is_exact()


def test_leader_and_standby_report_redis_and_only_the_leader_reports_tasks(new_fleet: NewFleet) -> None:
    """A scrape ends though Redis hangs or is gone, and then has no number but a zero."""
    fleet = new_fleet()
    scanners = fleet.start_all("scanner", "scanner")

    def leads(process: Process) -> float:
        return samples(process)["delayq_shard_leader"][0][1]

    until(lambda: sorted(map(leads, scanners)) == [0, 1], "one of them leads")
    for process in scanners:
        found = samples(process)
        assert found["delayq_redis_up"] == [({"queue": fleet.queue}, 1)]
        assert {labels["risk"] for labels, _ in found["delayq_durability_risk"]} == set(DURABILITY_RISKS)
        assert found["delayq_redis_replicas"] == [({"queue": fleet.queue}, 0)]
        assert bool(found["delayq_tasks"]) == bool(found["delayq_suspect_tasks"]) == bool(leads(process))
    for end, expected in ((fleet.server.pause, "timeout"), (fleet.server.kill, "refused")):
        end()
        for process in scanners:
            until(lambda of=process, word=expected: cause(of) == word, f"its cause is {expected}")  # type: ignore[misc]
            found = samples(process)
            assert found["delayq_redis_up"] == [({"queue": fleet.queue}, 0)]
            numbers = ("durability_risk", "tasks", "redis_replicas", "redis_clock_offset_seconds")
            assert [found[f"delayq_{name}"] for name in numbers] == [[]] * 4
        fleet.server.resume() if expected == "timeout" else fleet.server.restart()
        until(lambda: not any(map(cause, scanners)) and all(map(up, scanners)), "it serves again")


def test_a_redis_that_refuses_is_reported_by_what_it_says(new_fleet: NewFleet) -> None:
    """And one that is not there, by why."""
    fleet = new_fleet()
    nowhere = {"redis": {"standalone": {"host": "nowhere.invalid"}}}
    lost = new_fleet(nowhere, server=fleet.server).start("scanner", ready=False)
    process = fleet.start("scanner")
    until(lambda: cause(lost) == "dns", "the name")
    assert (up(lost), samples(lost)["delayq_durability_risk"]) == (0, [])
    beyond = fleet.start("scanner", "--redis", f"{fleet.server.url.removesuffix('0')}99", ready=False)
    until(lambda: cause(beyond) == "no_database", "the database")
    with fleet.server.client() as redis:
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", ">s3cret")
        cut(fleet.server)
        until(lambda: cause(process) == "auth", "the password")
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{PASSWORD}", "-evalsha", "-eval")
        until(lambda: cause(process) == "denied", "a right")
        redis.execute_command("ACL", "SETUSER", USER, "+evalsha", "+eval")
        until(lambda: cause(process) == "", "the right is back")
        clients = redis.config_get("maxclients")["maxclients"]
        redis.config_set("maxclients", 1)
        redis.execute_command("CLIENT", "KILL", "USER", USER)
        until(lambda: cause(process) == "max_clients", "connections")
        redis.config_set("maxclients", clients)
        until(lambda: cause(process) == "", "it connects again")
        redis.delete(scanners := Keys("delayq", fleet.queue, 0).scanners)
        redis.rpush(scanners, "no sorted set")
        until(lambda: cause(process) == "rejected", "a key of a wrong type")
        redis.delete(scanners)
        redis.config_set("min-replicas-to-write", 1)
        until(lambda: cause(process) == "no_replicas", "replicas that it wants")
        redis.config_set("min-replicas-to-write", 0)
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        until(lambda: cause(process) == "read_only", "that it is a replica")
        redis.execute_command("REPLICAOF", "NO", "ONE")
        until(lambda: cause(process) == "", "it serves again")


def test_risks_are_read_again_after_a_connect_and_hundreds_of_scrapes_cost_redis_a_few(
    new_fleet: NewFleet,
) -> None:
    """Any pod may make them."""
    fleet = new_fleet(config_get=True)
    process = fleet.start("scanner")
    fleet.server.config |= {"appendfsync": "no", "maxmemory-policy": "allkeys-lru"}
    fleet.server.restart()
    until(lambda: up(process) == 1 and risks(process) == {"fsync_off", "evicts"}, "it reads them again")
    with fleet.server.client() as redis:
        redis.config_resetstat()
        url, began = url_of(process, "metrics"), time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: process.wait_http(url), range(400)))
        seconds, calls = time.monotonic() - began, redis.info("commandstats")
    assert calls.get("cmdstat_info", {"calls": 0})["calls"] <= 2  # the risks are read after a connect
    asked = sum(each["calls"] for name, each in calls.items() if "evalsha" in name)
    assert asked < 30 + 20 * seconds  # of its own, a scanner asks a few times a second


def test_the_clock_offset_is_that_of_redis_to_this_machine(new_fleet: NewFleet) -> None:
    fleet = new_fleet(movable_clock=True)
    process = fleet.start("scanner")
    clock = fleet.server.clock
    assert clock is not None
    for offset_s in (-3600, 3600):
        clock.set_ms(offset_s * 1000)
        until(
            lambda offset=offset_s: any(  # type: ignore[misc]
                abs(value - offset) < 60  # however slow the machine: half a round trip
                for _, value in samples(process)["delayq_redis_clock_offset_seconds"]
            ),
            f"{offset_s} s",
        )

"""/healthz, /readyz and /metrics of running processes; tests/unit/service/test_probes.py has loops that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract import metrics as m
from prometheus_client.parser import text_string_to_metric_families

from tests.process.fleet import status, until, url_of, wait_said

if TYPE_CHECKING:
    from delayq.contract.metrics import Metric
    from prometheus_client import Metric as Family

    from tests.process.fleet import NewFleet, Role
    from tests.processes import Process

BY_ALL = {m.REDIS_ERRORS, m.LOOP_ERRORS, m.MISSING_REFERENCES}
BY_WORKER = {each for each in m.METRICS if each.name.startswith("delayq_worker_")} | BY_ALL
BY_SCANNER = set(m.METRICS) - BY_WORKER - {m.ERASED_SHARDS, m.API_REQUESTS} | BY_ALL
# Reported only while there is trouble, or a change of shards, or tasks have kinds.
SELDOM = {
    *(
        m.MISSING_REFERENCES,
        m.CONFLICTING_DELAYQUEUES,
        m.REDIS_DOWN,
        m.SHARD_DOWN,
        m.PARKED_TASKS,
        m.PARKED_OLDEST_DUE,
        m.DUE_KIND_TASKS,
        m.SUSPENDED,
    ),
    *(each for each in m.METRICS if "_resharding_" in each.name or "_worker_kind_" in each.name),
}
HEAVY = {
    *("aiohttp", "prometheus_client", "http.server", "urllib.request", "wsgiref"),
    *("cryptography.x509", "kopf", "kubernetes", "rich", "sqlalchemy"),
    *("delayq.client.base", "delayq.connection.sync", "delayq.forecast", "delayq.local", "delayq.scaling"),
}
ROLES = {f"delayq.{package}.{package}" for package in ("worker", "scanner", "reaper")}


EXPORTED: dict[Role, set[Metric]] = {"worker": BY_WORKER, "scanner": BY_SCANNER, "reaper": BY_ALL}


def test_processes_wait_for_redis_are_ready_while_it_serves_and_export_their_metrics(
    new_fleet: NewFleet,
) -> None:
    """Redis is away at the start, then there, away again, and back."""
    fleet = new_fleet({"guard": {"redisLock": {}}})  # whose metrics have no values without one
    fleet.server.kill()
    processes = {role: fleet.start(role, ready=False) for role in EXPORTED}
    for role, process in processes.items():
        assert status(process, "readyz") == 503
        wait_said(process, "redis_unavailable")
        assert role == "reaper" or not measured(scraped(process), role)
    families: dict[Role, dict[str, Family]] = {}
    for _ in range(2):
        fleet.server.restart()
        for role, process in processes.items():
            until(lambda of=process: status(of, "readyz") == 200, "it is ready")  # type: ignore[misc]
            families[role] = scraped_with_values(process, role)
        fleet.server.kill()
        for process in processes.values():
            until(lambda of=process: status(of, "readyz") == 503, "not ready without Redis")  # type: ignore[misc]
            assert status(process, "healthz") == 200, "a restart would not bring Redis back"
            assert status(process, "metrics") == 200
    for role, metrics in EXPORTED.items():
        by_name = {metric.name.removesuffix("_total"): metric for metric in metrics}
        assert set(families[role]) == set(by_name)
        for name, metric in by_name.items():
            check_family(metric, families[role][name])


def measured(families: dict[str, Family], role: Role) -> bool:
    """Whether a value is there that Redis has to answer for."""
    asked = {"worker": m.WORKER_FIRST_CLAIM, "scanner": m.TASKS}
    return bool(families[asked[role].name].samples)


def scraped_with_values(process: Process, role: Role) -> dict[str, Family]:
    """Wait for one scrape with values of Redis (a reaper has none). The next scrape may have none again: a scanner on a
    busy machine can lose its lead for a moment."""
    scrapes: list[dict[str, Family]] = []

    def has_values() -> bool:
        scrapes.append(scraped(process))
        return role == "reaper" or measured(scrapes[-1], role)

    until(has_values, "it has measured since")
    return scrapes[-1]


def scraped(process: Process) -> dict[str, Family]:
    text = process.wait_http(url_of(process, "metrics")).decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    return {name: each for name, each in families.items() if name.startswith("delayq_")}


def check_family(metric: Metric, family: Family) -> None:
    assert family.documentation == metric.help
    assert family.type == metric.kind
    assert bool(family.samples) == (metric not in SELDOM), f"{metric.name}: {family.samples}"
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == set(metric.labels)


def test_a_process_imports_no_library_or_role_that_it_does_not_run(new_fleet: NewFleet) -> None:
    """Imports are most of its memory. Python prints them: `import time: self [us] | cumulative | module`."""
    fleet = new_fleet(environment={"PYTHONPROFILEIMPORTTIME": "1"})
    for role, process in zip(EXPORTED, fleet.start_all(*EXPORTED), strict=True):
        assert status(process, "metrics") == 200
        lines = [line for line in process.lines if line.startswith("import time:")]
        imported = {line.rpartition("|")[2].strip() for line in lines}
        assert imported & (HEAVY | ROLES) == {f"delayq.{role}.{role}"}

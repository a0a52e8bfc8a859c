"""What is exported is what Prometheus' own library reads."""

from __future__ import annotations

import math
import os

from delayq.contract import metrics as m
from delayq.protocol.due_histogram import asked
from delayq.protocol.results import Counts
from delayq.service.counters import CountersByKind, WorkerCounters
from delayq.service.exposition import Family, Sample, render
from delayq.service.metrics import queue_families, worker_families
from prometheus_client.parser import text_string_to_metric_families


def test_labels_help_and_numbers_survive_their_way_through_the_text() -> None:
    odd = 'a "b" \\ c\nd,e={}'
    values = (0, 1.5, 1e20, float("inf"), float("-inf"), float("nan"))
    samples = [Sample("odd_things", {"at": str(at), "name": odd}, value) for at, value in enumerate(values)]
    [family] = [
        each
        for each in text_string_to_metric_families(
            render([Family("odd_things", "First \\ line\nand second.", "gauge", samples)]).decode()
        )
        if each.name == "odd_things"
    ]
    assert (family.documentation, family.type) == ("First \\ line\nand second.", "gauge")
    assert {each.labels["name"] for each in family.samples} == {odd}
    for read, value in zip(family.samples, values, strict=True):
        assert read.value == value or (math.isnan(read.value) and math.isnan(value))


def test_a_histogram_is_cumulative_and_has_sum_and_count() -> None:
    counters = WorkerCounters(process="worker", queue="orders")
    for seconds in (0.0004, 0.3, 9999):
        counters.handler.observe(seconds)
    text = render(worker_families(counters)).decode()
    name = m.WORKER_HANDLER.name
    [family] = [each for each in text_string_to_metric_families(text) if each.name == name]
    read = {(each.name.removeprefix(name), each.labels.get("le")): each.value for each in family.samples}
    assert read["_bucket", "0.001"] == 1
    assert read["_bucket", "0.5"] == 2
    assert read["_bucket", "+Inf"] == read["_count", None] == 3
    assert read["_sum", None] == 9999.3004


def test_kinds_are_counted_up_to_a_limit_and_those_of_the_handler_always() -> None:
    counters = WorkerCounters("worker", "orders", kinds=CountersByKind({"push", "late"}))
    counters.kinds["push"].settled["acked"] += 1
    for nth in range(100):
        counters.kinds[f"kind-{nth}"].settled["parked"] += 1
    counters.kinds["late"].runs, counters.kinds["late"].seconds = 2, 0.5
    counters.kinds["kind-99"].runs += 1
    counters.kinds["late"].settled["gone"] += 1  # no outcome of a worker
    families = {each.name: each for each in worker_families(counters)}
    settled = {
        (each.labels["kind"], each.labels["outcome"]): each.value
        for each in families[m.WORKER_KIND_SETTLED.name].samples
    }
    ones = {(f"kind-{nth}", "parked"): 1 for nth in range(m.MOST_KINDS - 2)}
    assert settled == {("push", "acked"): 1, ("other", "parked"): 100 - len(ones)} | ones

    def of(name: str) -> dict[str, float]:
        return {each.labels["kind"]: each.value for each in families[name].samples if each.value}

    assert of(m.WORKER_KIND_RUNS.name) == {"late": 2, "other": 1}
    assert of(m.WORKER_KIND_HANDLER_SECONDS.name) == {"late": 0.5}


def test_a_process_exports_its_own_resources() -> None:
    families = {each.name: each for each in text_string_to_metric_families(render([]).decode())}
    read = {name: family.samples[0].value for name, family in families.items()}
    assert read.keys() == {
        *("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds"),
        *("process_cpu_seconds", "process_open_fds", "process_max_fds"),
    }
    assert read["process_virtual_memory_bytes"] > read["process_resident_memory_bytes"] > 2**20
    assert read["process_cpu_seconds"] <= sum(os.times()[:2]) + 0.1
    assert 3 <= read["process_open_fds"] < read["process_max_fds"]


def test_bytes_are_exported_of_each_shard_that_is_led() -> None:
    found = {
        shard: Counts(
            9, 0, 0, 0, 0, 0, oldest_due_ms=None, next_due_ms=None, due_within={10_000: 0}, bytes=100 + shard
        )
        for shard in range(2)
    }
    families = queue_families("orders", {0: True, 1: True}, found, asked(["10"]))
    [weights] = [each for each in families if each.name == m.TASK_BYTES.name]
    assert {each.labels["shard"]: each.value for each in weights.samples} == {"0": 100, "1": 101}

"""The table of metrics keeps to what Prometheus asks of names."""

from __future__ import annotations

import re

import pytest
from delayq.contract.metrics import LATENESS_BUCKETS, METRICS, Metric


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.name))
def test_a_metric_is_named_and_explained_as_prometheus_wants_it(metric: Metric) -> None:
    assert re.fullmatch("delayq_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_seconds") or metric.kind != "histogram"
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert metric.help.endswith(".")
    assert metric.labels[0] == "queue"
    assert not {"le", "quantile"} & set(metric.labels)


def test_every_metric_has_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_lateness_is_told_apart_from_half_a_millisecond_to_an_hour() -> None:
    assert (LATENESS_BUCKETS[0], LATENESS_BUCKETS[-1]) == (0.0005, 3600.0)
    assert {0.0015, 0.005} < set(LATENESS_BUCKETS)

"""The table of metrics keeps to what Prometheus asks of names."""

from __future__ import annotations

import re

from delayq.contract.metrics import METRICS


def test_metrics_are_named_and_explained_as_prometheus_wants_it() -> None:
    for metric in METRICS:
        assert re.fullmatch("delayq_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.endswith("_seconds") or metric.kind != "histogram", metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name
        assert metric.help.endswith("."), metric.name
        assert metric.labels[0] == "queue", metric.name
        assert not {"le", "quantile"} & set(metric.labels), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)

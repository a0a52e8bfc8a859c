"""Alerts ask for metrics that there are, by labels that they have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from delayq.cli.root import delayq
from delayq.client.document import read
from delayq.contract.alerts import rules
from delayq.contract.metrics import METRICS, SHARD_MAP_SHARDS, SHARD_MAP_VERSIONS
from delayq.service.counters import WorkerCounters
from delayq.service.exposition import render
from delayq.service.metrics import worker_families
from delayq_operator.desired.monitoring import prometheus_rule
from delayq_operator.scrape.lateness import WINDOW_SECONDS

from tests.unit.operator.queues import RICH, facts, queue

ROOT = Path(__file__).parents[2]
LABELS = {metric.name: {*metric.labels, "namespace"} for metric in METRICS}


def alerts(**spec: object) -> list[dict[str, Any]]:
    of = queue(RICH, **spec)
    rule = prometheus_rule(of, facts(of))
    assert rule is not None
    (group,) = rule["spec"]["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_every_alert_asks_for_metrics_of_ours_by_labels_they_have() -> None:
    for alert in alerts():
        selected = re.findall(r"(delayq_\w+)\{([^}]*)\}", alert["expr"])
        assert selected
        grouped = re.findall(r"(?:by|on) \((\w+)\)", alert["expr"])
        for selector, labels in selected:
            name = selector.removesuffix("_bucket")
            assert set(re.findall(r"(\w+)=", labels)) <= LABELS[name] | (
                {"le"} if name != selector else set()
            )
            assert name == SHARD_MAP_SHARDS.name or set(grouped) <= LABELS[name]
        assert set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])) <= set(grouped)


def test_every_alert_links_its_runbook_and_is_about_this_queue_and_no_other() -> None:
    for alert in alerts():
        assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{alert['alert']}.md")
        assert 'namespace="shop",queue="unpaid-orders"' in alert["expr"]
        assert alert["labels"]["delayqueue"] == "orders"


@pytest.mark.parametrize(
    ("spec", "lacks"),
    [
        (
            {"scanner": {"replicas": 0}},
            {"DelayQueueLeaderless", "DelayQueueShardsNotServed", "DelayQueueReshardingStalled"},
        ),
        ({"guard": None, "recovery": {}}, {"DelayQueueGuardDown"}),
        ({"api": None}, {"DelayQueueApiDown", "DelayQueueApiErrors"}),
        ({"recovery": {}}, {"DelayQueueChecksFail", "DelayQueueAwaitsVerdict"}),
    ],
)
def test_a_queue_without_scanners_a_guard_an_api_or_a_check_is_not_blamed_for_lacking_them(
    spec: dict[str, Any], lacks: set[str]
) -> None:
    assert lacks <= {alert["alert"] for alert in alerts()}
    assert not lacks & {alert["alert"] for alert in alerts(**spec)}


def test_shard_maps_are_asked_for_by_the_names_they_have() -> None:
    asked = [which for alert in alerts() for which in re.findall(r'version="(\w+)"', alert["expr"])]
    assert asked
    assert set(asked) <= set(SHARD_MAP_VERSIONS)


def test_lateness_is_measured_against_the_objective_of_the_document() -> None:
    expr = late({"latenessMilliseconds": 30000, "percentile": "95"})
    assert 'le="30.0"' in expr
    assert "clamp_min(1 - 30 / max(" in expr
    assert "> 0.05 * (" in expr
    fine = late({"latenessMilliseconds": 5, "percentile": "99.9"})
    assert 'le="0.005"' in fine
    assert "clamp_min(1 - 0.005 / max(" in fine
    assert "> 0.001 * (" in fine


def test_an_objective_between_two_bounds_of_the_histogram_counts_in_proportion() -> None:
    """42 s is two fifths of the way from 30 to 60."""
    expr = late({"latenessMilliseconds": 42000})
    assert re.findall(r"0\.4 \* \(.*?le=\"([0-9.]+)\"", expr) == ["60.0"]
    assert set(re.findall(r'le="(.*?)"', expr)) == {"+Inf", "30.0", "60.0"}
    assert set(re.findall(r'le="(.*?)"', late({"latenessMilliseconds": 7200000}))) == {"+Inf"}


def late(objective: dict[str, int | str]) -> str:
    (found,) = (alert["expr"] for alert in alerts(objective=objective) if alert["alert"] == "DelayQueueLate")
    return str(found)


def test_the_window_of_the_alert_is_that_of_the_condition() -> None:
    assert set(re.findall(r"\[(\d+)m\]", late({}))) == {f"{WINDOW_SECONDS / 60:g}"}
    (seconds,) = (alert["for"] for alert in alerts() if alert["alert"] == "DelayQueueLate")
    assert int(seconds.removesuffix("s")) > WINDOW_SECONDS, (
        "one late task would fire it while it is in the window"
    )


def test_bounds_are_named_as_workers_name_them() -> None:
    """Prometheus compares them as text."""
    text = render(worker_families(WorkerCounters(process="worker", queue="orders"))).decode()
    named = set(re.findall(r'due_to_claimed_seconds_bucket{le="(.*?)"', text))
    assert set(re.findall(r'le="(.*?)"', late({"latenessMilliseconds": 42000}))) <= named


def test_delayq_alerts_prints_the_rules_that_the_operator_makes_without_a_namespace() -> None:
    """And examples/production has them as a file, for a Prometheus that no operator configures."""
    document = ROOT / "examples/production/queue.yaml"
    done = CliRunner().invoke(delayq, ["alerts", str(document)])
    assert done.exit_code == 0, done.output
    assert (ROOT / "examples/production/delayq.rules.yaml").read_text() == done.output
    [group] = yaml.safe_load(done.output)["groups"]
    assert group["rules"] == rules(read(document), None)
    assert "namespace" not in done.output
    ours = [without_namespace(rule) for rule in rules(read(document), "shop")]
    assert group["rules"] == ours


def without_namespace(rule: dict[str, Any]) -> dict[str, Any]:
    rule["labels"].pop("namespace")
    rule["annotations"]["summary"] = rule["annotations"]["summary"].replace("shop/", "")
    return rule | {"expr": rule["expr"].replace('namespace="shop",', "")}

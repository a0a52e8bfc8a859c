"""Alerts ask for metrics that there are, by labels that they have."""

from __future__ import annotations

import re
from typing import Any

from delayq.contract.metrics import LAYOUT_SHARDS, LAYOUTS, METRICS
from delayq_operator.desired.prometheus_rule import prometheus_rule

from tests.unit.operator.queues import RICH, facts, queue

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
        for name, labels in selected:
            assert set(re.findall(r"(\w+)=", labels)) <= LABELS[name]
            assert name == LAYOUT_SHARDS.name or set(grouped) <= LABELS[name]
        assert set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])) <= set(grouped)


def test_alerts_are_about_this_queue_and_no_other() -> None:
    for alert in alerts():
        assert 'namespace="shop",queue="unpaid-orders"' in alert["expr"]
        assert alert["labels"]["delayqueue"] == "orders"


def test_alerts_have_names_of_their_own_and_brackets_that_close() -> None:
    found = alerts()
    assert len({alert["alert"] for alert in found}) == len(found)
    for alert in found:
        for opening, closing in ("()", "{}", "[]"):
            assert alert["expr"].count(opening) == alert["expr"].count(closing)


def test_a_queue_without_scanners_is_not_blamed_for_having_no_leader() -> None:
    ours = {"DelayQueueLeaderless", "DelayQueueShardsNotServed", "DelayQueueReshardingStalled"}
    assert ours <= {alert["alert"] for alert in alerts()}
    assert not ours & {alert["alert"] for alert in alerts(scanner={"replicas": 0})}


def test_layouts_are_asked_for_by_the_names_they_have() -> None:
    asked = [which for alert in alerts() for which in re.findall(r'layout="(\w+)"', alert["expr"])]
    assert asked
    assert set(asked) <= set(LAYOUTS)


def test_a_queue_without_a_guard_is_not_blamed_for_having_none() -> None:
    assert "DelayQueueGuardDown" in {alert["alert"] for alert in alerts()}
    guards: list[dict[str, Any] | None] = [None, {"none": {}}]
    for guard in guards:
        bare = alerts(guard=guard, reaper={})
        assert "DelayQueueGuardDown" not in {alert["alert"] for alert in bare}


def test_a_queue_without_a_check_is_not_blamed_for_its_failures() -> None:
    ours = {"DelayQueueChecksFail", "DelayQueueAwaitsVerdict"}
    assert ours <= {alert["alert"] for alert in alerts()}
    assert not ours & {alert["alert"] for alert in alerts(reaper={})}


def test_lateness_is_measured_against_the_objective_of_the_document() -> None:
    (late,) = (
        alert for alert in alerts(objective={"latenessSeconds": 42}) if alert["alert"] == "DelayQueueLate"
    )
    assert late["expr"].endswith("> 42")

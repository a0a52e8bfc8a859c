"""charts/delayq says what the rest of the project says, and says everything once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq.contract.metrics import API_REQUESTS, METRICS, REDIS_CLOCK_OFFSET_SECONDS, REDIS_REPLICAS
from delayq_operator.base import metrics as operator_metrics
from delayq_operator.reconcile.reconcile import RETRY_SECONDS
from prometheus_client.metrics import MetricWrapperBase

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "delayq"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
RULES = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())

Schema = dict[str, Any]


@pytest.mark.parametrize("script", ["chart-sync", "chart-dashboard"])
def test_what_is_made_from_something_else_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / f"{script}.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run tools/{script}.py: {done.stdout}{done.stderr}"


def test_the_chart_has_the_versions_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"], PROJECT["version"])


# --- Values.


def sections(schema: Schema, values: Schema, path: str = "") -> Iterator[tuple[str, Schema, Schema]]:
    """Every part of the schema that names its properties, with the values of that part."""
    yield path or "the top", schema, values
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from sections(inner, values[name], f"{path}{name}.")


def test_the_schema_has_exactly_the_values_of_the_chart_and_explains_each() -> None:
    for path, schema, values in sections(SCHEMA, VALUES):
        assert list(schema["properties"]) == [*values, *(["global"] if values is VALUES else [])], path
        assert schema["additionalProperties"] is False, path
        for name, inner in schema["properties"].items():
            assert inner["description"].endswith((".", ":")), name


# --- Metrics.

TARGET_LABELS = {"namespace", "pod", "le"}  # of Prometheus and of histograms


def exported() -> dict[str, set[str]]:
    """Every series that delayq exports, and its labels."""
    ours = [(metric.name, metric.kind, metric.labels) for metric in METRICS]
    return {
        name: set(labels) for metric, kind, labels in [*ours, *operators()] for name in series(metric, kind)
    }


def operators() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for metric in vars(operator_metrics).values():
        if isinstance(metric, MetricWrapperBase):
            total = "_total" if metric._type == "counter" else ""
            yield metric._name + total, str(metric._type), tuple(metric._labelnames)


def series(name: str, kind: str) -> list[str]:
    return [f"{name}_{part}" for part in ("bucket", "sum", "count")] if kind == "histogram" else [name]


def queries() -> Iterator[str]:
    """Every PromQL expression of the chart."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"][1:]:
        yield re.sub(r"^label_values\((.*), \w+\)$", r"\1", variable["query"])
    yield from alerts()


def alerts() -> list[str]:
    return [rule["expr"] for rule in RULES]


def labels_in(query: str) -> set[str]:
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query)
    grouped = [name for group in re.findall(r"\bby \(([^)]*)\)", query) for name in group.split(", ")]
    return {*selected, *grouped}


def test_dashboard_and_alerts_ask_for_metrics_and_labels_that_exist() -> None:
    known = exported()
    for query in queries():
        asked = set(re.findall(r"delayq_\w+", query))
        assert asked, query
        assert asked <= set(known)
        assert labels_in(query) <= TARGET_LABELS.union(*(known[name] for name in asked)), query


def test_the_dashboard_shows_each_metric_of_operator_and_api_and_what_no_condition_tells_of_redis() -> None:
    asked = "\n".join(queries())
    mine = {name.removesuffix("_bucket") for name in exported() if name.startswith("delayq_operator")}
    families = {name for name in mine if not name.endswith(("_sum", "_count"))}
    shown = families | {REDIS_REPLICAS.name, REDIS_CLOCK_OFFSET_SECONDS.name, API_REQUESTS.name}
    assert {name for name in shown if name not in asked} == set()


def test_every_alert_says_what_is_wrong_and_can_be_disabled_and_is_in_the_readme_with_its_severity() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["for"]
    listed = re.findall(r"^\| `(DelayQ\w+)` \| (\w+) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]
    disabled = SCHEMA["properties"]["prometheusRule"]["properties"]["disabled"]["items"]["enum"]
    assert disabled == [rule["alert"] for rule in RULES]


def test_every_failure_that_no_user_chose_has_an_alert() -> None:
    """What the spec asks for in vain (invalid, refused) is the DelayQueue's to tell, in its conditions."""
    matchers = [re.findall(r'result=~?"([^"]+)"', query) for query in alerts()]
    watched = [result for found in matchers for each in found for result in each.split("|")]
    assert sorted(watched) == ["bug", "error", "unavailable"]
    assert set(watched) <= set(RETRY_SECONDS)
    assert not [query for query in alerts() if re.search(r'result="[^"]*\|', query)]


@pytest.mark.parametrize(
    "page",
    [
        CHART / "README.md",
        CHART / "values.yaml",
        CHART / "templates/NOTES.txt",
        ROOT / "docs/how-to/install.md",
    ],
    ids=lambda page: page.name,
)
def test_what_is_said_of_the_crds_is_said_of_both(page: Path) -> None:
    assert re.findall(r"(?:\bthe|\bits) (?:CRD|CustomResourceDefinition)\b(?! of)", page.read_text()) == []

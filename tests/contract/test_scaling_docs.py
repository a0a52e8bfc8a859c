"""docs/how-to/hpa-keda.md shows the HPA that tests apply, and asks for metrics that scanners export."""

from __future__ import annotations

import re
from pathlib import Path

from delayq.contract.metrics import METRICS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "hpa-keda.md").read_text()
ADDED = {"namespace", "pod"}
"""Labels that Prometheus adds."""


def test_the_hpa_of_the_page_is_the_one_that_a_test_applies() -> None:
    manifest = (ROOT / "examples" / "hpa" / "hpa.yaml").read_text()
    assert f"```yaml\n{manifest}```" in PAGE


def test_its_queries_ask_for_metrics_and_labels_that_exist() -> None:
    known = {metric.name: ADDED.union(metric.labels) for metric in METRICS}
    asked = re.findall(r"(delayq_\w+)\{([^}]*)\}", PAGE)
    assert asked
    for name, matchers in asked:
        assert set(re.findall(r"(\w+)=~?\"", matchers)) <= known[name], name

"""docs/how-to/hpa-keda.md shows the HPA that tests apply."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_hpa_of_the_page_is_the_one_that_a_test_applies() -> None:
    manifest = (ROOT / "examples" / "hpa" / "hpa.yaml").read_text()
    assert f"```yaml\n{manifest}```" in (ROOT / "docs" / "how-to" / "hpa-keda.md").read_text()

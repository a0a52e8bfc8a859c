"""What docs/explanation/simulation.md shows of a simulation is what it prints and draws."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from benchmarks.simulation.__main__ import simulate

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
SECTION = (DOCS / "explanation" / "simulation.md").read_text()
SHOWN = re.findall(
    r"^```text\n\$ python -m benchmarks\.simulation (.*)\n((?:.*\n)*?)```$", SECTION, re.MULTILINE
)


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(simulate, args, input=stdin)


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    [text] = re.findall(r"^```yaml\n((?:.*\n)*?)```$", SECTION, re.MULTILINE)
    (tmp_path / "queue.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return str(text)


def test_a_spike_and_a_day_are_shown() -> None:
    assert [re.findall(r"--png (\w+)\.png", command) for command, _ in SHOWN] == [["spike"], ["daily"]]


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=["spike", "daily"])
@pytest.mark.usefixtures("document")
def test_a_command_prints_and_draws_what_is_shown(command: str, shown: str, tmp_path: Path) -> None:
    """After …, the end of it."""
    result = run(*shlex.split(command))
    assert result.exit_code == 0, result.output
    if shown.startswith("…\n"):
        assert result.stdout.endswith(shown.removeprefix("…\n"))
    else:
        assert result.stdout == shown
    [name] = re.findall(r"--png (\w+\.png)", command)
    assert f"(../images/simulate-{name})" in SECTION
    assert (DOCS / f"images/simulate-{name}").stat().st_size < 100_000
    drawn, kept = imread(tmp_path / name), imread(DOCS / f"images/simulate-{name}")
    assert drawn.shape == kept.shape
    assert abs(drawn - kept).mean() < 0.01  # another machine may draw a line by a hair differently


def test_windows_take_the_pod_hours_that_are_said(document: str, tmp_path: Path) -> None:
    told = re.findall(
        r"of 300 s would make it ([0-9.]+) pod-hours,\nnone at all \(`.*`\) ([0-9.]+)$", SECTION, re.MULTILINE
    )
    for seconds, said in zip((300, 0), *told, strict=True):
        window = f"behavior: {{scaleDown: {{stabilizationWindowSeconds: {seconds}}}}}"
        (tmp_path / "queue.yaml").write_text(
            document.replace("maxReplicas: 100", f"maxReplicas: 100, {window}")
        )
        found = run("queue.yaml")
        assert re.findall(r"^pod-hours +([0-9.]+)$", found.stdout, re.MULTILINE) == [said]


def test_the_trace_that_is_shown_can_be_read(document: str) -> None:
    assert document
    [lines] = re.findall(r"^```csv\n((?:.*\n)*?)```$", SECTION, re.MULTILINE)
    result = run("queue.yaml", "--trace", "-", stdin=lines)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search(r"^tasks +601$", result.stdout, re.MULTILINE)

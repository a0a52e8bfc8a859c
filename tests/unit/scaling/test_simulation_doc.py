"""What docs/contributing/simulation.md shows of a simulation is what it prints and draws."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.simulation.__main__ import simulate

DOCS = Path(__file__).parents[3] / "docs"
SECTION = (DOCS / "contributing" / "simulation.md").read_text()
[DOCUMENT] = re.findall(r"^```yaml\n((?:.*\n)*?)```$", SECTION, re.MULTILINE)
SHOWN = re.findall(
    r"^```text\n\$ python -m benchmarks\.simulation (.*)\n((?:.*\n)*?)```$", SECTION, re.MULTILINE
)


def run(*args: str, stdin: str = "") -> Result:
    result = CliRunner().invoke(simulate, args, input=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "queue.yaml").write_text(DOCUMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "shown"), [SHOWN[0], pytest.param(*SHOWN[1], marks=pytest.mark.full)], ids=["spike", "daily"]
)
def test_a_command_prints_and_draws_what_is_shown(command: str, shown: str, here: Path) -> None:
    """After …, the end of it."""
    printed = run(*shlex.split(command)).stdout
    if shown.startswith("…\n"):
        assert printed.endswith(shown.removeprefix("…\n"))
    else:
        assert printed == shown
    [name] = re.findall(r"--png (\w+\.png)", command)
    assert f"(../images/simulate-{name})" in SECTION
    from matplotlib.image import imread  # noqa: PLC0415 -- a second of a core, in each pytest worker

    drawn, kept = imread(here / name), imread(DOCS / f"images/simulate-{name}")
    assert drawn.shape == kept.shape
    assert abs(drawn - kept).mean() < 0.01  # another machine may draw a line by a hair differently

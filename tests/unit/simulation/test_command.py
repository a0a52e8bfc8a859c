"""python -m benchmarks.simulation: what it prints and what it takes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from benchmarks.simulation import run as simulation_run
from benchmarks.simulation.__main__ import simulate as command

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis.shop.svc}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
  worker: {concurrency: 10}
  autoscaling: {maxReplicas: 100}
"""

SPIKE = "spike:2000@60s/500ms"


@pytest.fixture
def queue(tmp_path: Path) -> str:
    path = tmp_path / "queue.yaml"
    path.write_text(DOCUMENT)
    return str(path)


def simulate(*args: str, stdin: bytes | str = b"") -> Result:
    return CliRunner().invoke(command, args, input=stdin)


def runs(*args: str, stdin: bytes | str = b"") -> list[dict[str, Any]]:
    result = simulate(*args, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["runs"]
    return found


def test_without_options_a_rush_is_met_in_time(queue: str) -> None:
    result = simulate(queue)
    assert result.exit_code == 0
    assert result.stderr == (
        "note: made-up tasks: --scenario spike:2000@60s/500ms; --trace reads tasks from a file\n"
    )
    assert "0 → 100 workers: 2,000 due within 19 s; 100 × 10 slots of 0.5 s a task" in result.stdout
    assert re.search(r"^begun early +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^objective: 99 % within 1 s +met$", result.stdout, re.MULTILINE)


def test_the_same_command_prints_the_same(queue: str) -> None:
    args = (queue, "--scenario", "poisson:20/s@2m", "--seed", "7")
    assert simulate(*args).output == simulate(*args).output
    assert simulate(*args).output != simulate(*args[:-1], "8").output


def test_bounds_lead_and_handler_time_may_be_others(queue: str) -> None:
    [found] = runs(
        queue,
        "--max",
        "20",
        "--min",
        "3",
        "--lead",
        "40s",
        "--scenario",
        "spike:300@2m",
        "--handler-time",
        "2s",
    )
    assert found["changes"][0]["at_ms"] == 76_000
    assert found["changes"][0]["before"] == 3
    assert found["most_workers"] == 20
    assert found["late_ms"] == {"p50": 0, "p99": 2000, "max": 2000}
    assert found["objective_met"] is False
    assert found["changes"][-1]["after"] == 3


def test_what_is_not_known_yet_is_learnt_on_the_way(queue: str) -> None:
    late = [
        runs(queue, "--scenario", "spike:100@1m/5s", "--lead", "40s", *more)[0]["late_ms"]["max"]
        for more in ([], ["--fresh"])
    ]
    assert late[0] <= 1000 < late[1]


def test_a_reactive_policy_stands_beside_it(queue: str) -> None:
    ours, theirs = runs(queue, "--compare", "reactive")
    assert (ours["by"], theirs["by"]) == ("delayq", "reactive")
    assert ours["objective_met"]
    assert not theirs["objective_met"]
    assert theirs["late_ms"]["p50"] > 30_000
    assert theirs["changes"][0]["decision"] is None
    shown = simulate(queue, "--compare", "reactive").stdout
    assert re.search(r"^SUMMARY +DELAYQ +REACTIVE$", shown, re.MULTILINE)


def test_a_trace_comes_from_a_file_or_from_stdin(queue: str, tmp_path: Path) -> None:
    lines = "due,count,handler_ms\n2026-12-01T09:00:00Z,50,100\n2026-12-01T09:00:30Z,,\n"
    (tmp_path / "trace.csv").write_text(lines)
    for args, stdin in ((str(tmp_path / "trace.csv"), ""), ("-", lines)):
        [found] = runs(queue, "--trace", args, stdin=stdin)
        assert (found["tasks"], found["objective_met"]) == (51, True)
        assert found["start"] == "2026-12-01T08:59:39.000Z"
    assert "\n08:59:39 " in simulate(queue, "--trace", str(tmp_path / "trace.csv")).stdout


def test_later_tasks_are_left_out_and_that_is_said(queue: str) -> None:
    trace = "due,count\n+10,5\n+7200,3\n"
    result = simulate(queue, "--trace", "-", "--for", "1h", stdin=trace)
    assert result.stderr == "note: left out 3 tasks due later than 1h; --for takes them in\n"
    assert re.search(r"^tasks +5$", result.stdout, re.MULTILINE)


def test_without_autoscaling_its_defaults_count(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(DOCUMENT.replace("  autoscaling: {maxReplicas: 100}\n", ""))
    result = simulate(str(path), "--scenario", SPIKE)
    assert result.stderr == f"note: {path} has no spec.autoscaling, so its defaults count\n"
    assert "were needed, more than maxReplicas" in result.stdout


def test_a_simulation_that_never_ends_is_ended(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_run, "MOST_LOOKS", 100)
    result = simulate(queue, "--scenario", "spike:3000@1m/1s", "--max", "1")
    assert result.exit_code != 0
    assert "expected at most 100 decisions" in result.output


def test_a_chart_is_drawn_into_a_file(queue: str, tmp_path: Path) -> None:
    result = simulate(
        queue, "--scenario", SPIKE, "--compare", "reactive", "--png", str(tmp_path / "chart.png")
    )
    assert (result.exit_code, result.stderr) == (0, f"wrote {tmp_path / 'chart.png'}\n")
    picture = (tmp_path / "chart.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 100_000

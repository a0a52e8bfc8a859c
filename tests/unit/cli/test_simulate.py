"""delayq simulate: what it prints, what it takes, and what it refuses. Queues in Redis: tests/redis."""

from __future__ import annotations

import builtins
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq.cli import simulated
from delayq.cli.result_keys import KEYS
from delayq.scaling import Policy, Sample, begun, decide, recorded, sentence
from delayq.simulation import run as simulation_run

from tests.unit.cli.runner import run

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


def simulate(*args: str, stdin: bytes | str = b"", **env: str) -> Result:
    return run("simulate", *args, stdin=stdin, **env)


def runs(*args: str, stdin: bytes | str = b"") -> list[dict[str, Any]]:
    result = simulate(*args, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["runs"]
    return found


def test_without_options_a_rush_is_met_in_time(queue: str) -> None:
    result = simulate(queue)
    assert result.exit_code == 0
    assert result.stderr == (
        "note: made-up tasks: --scenario spike:2000@60s/500ms; for those that wait in the queue: --snapshot\n"
    )
    assert "0 → 100 workers: 2,000 due within 19 s; 100 × 10 slots of 0.5 s a task" in result.stdout
    assert re.search(r"^begun early +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^objective: 99 % within 1 s +met$", result.stdout, re.MULTILINE)


def test_who_names_a_scenario_is_not_told_that_it_is_made_up(queue: str) -> None:
    assert simulate(queue, "--scenario", "spike:20@60s").stderr == ""


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
        "40",
        "--scenario",
        "spike:300@2m",
        "--handler-ms",
        "2000",
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


def test_every_key_of_the_result_is_explained(queue: str) -> None:
    def keys(value: object) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()

    found = {re.sub("_ms$", "", key) for key in keys(runs(queue))} - {"p50", "p99", "max"}
    assert found <= {re.sub("_ms$", "", key) for key in KEYS}


def test_a_trace_comes_from_a_file_or_from_stdin(queue: str, tmp_path: Path) -> None:
    lines = "due,count,handler_ms\n2026-12-01T09:00:00Z,50,100\n2026-12-01T09:00:30Z,,\n"
    (tmp_path / "trace.csv").write_text(lines)
    for args, stdin in ((str(tmp_path / "trace.csv"), ""), ("-", lines)):
        [found] = runs(queue, "--trace", args, stdin=stdin)
        assert (found["tasks"], found["objective_met"]) == (51, True)
        assert found["start"] == "2026-12-01T08:59:39.000Z"
    assert "\n08:59:39 " in simulate(queue, "--trace", str(tmp_path / "trace.csv")).stdout


def test_lines_that_are_wrong_are_told_with_file_and_line(queue: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("due\n+1\nsoon\n")
    result = simulate(queue, "--trace", str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"error: {path}:3: due: expected a time like ")
    path.write_bytes(b"due\n+1\n" + b"x" * 20_000)
    assert simulate(queue, "--trace", str(path)).stderr == (
        f"error: {path}:3: expected a line of less than 10,000 bytes\n"
    )
    path.write_bytes(b"\xef\xbb\xbfdue\r\n+1\r\n\xff\r\n")
    assert f"error: {path}:3: due: expected a time" in simulate(queue, "--trace", str(path)).stderr


def test_later_tasks_are_left_out_and_that_is_said(queue: str) -> None:
    trace = "due,count\n+10,5\n+7200,3\n"
    result = simulate(queue, "--trace", "-", "--for", "1h", stdin=trace)
    assert result.stderr == "note: left out 3 tasks due later than 1h; --for takes them in\n"
    assert re.search(r"^tasks +5$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        ([], "expected QUEUE, or --decision FILE", 2),
        (
            ["QUEUE", "--trace", "-", "--scenario", "spike"],
            "expected one of --trace, --scenario and --snapshot",
            2,
        ),
        (["QUEUE", "--scenario", "storm"], "--scenario: expected spike:2000@60s/500ms", 2),
        (["QUEUE", "--scenario", "spike:9000000"], "expected at most 5,000,000 tasks, got 9,000,000", 2),
        (["QUEUE", "--scenario", "spike:1@2h", "--for", "1h"], "expected tasks to simulate, found none", 2),
        (["QUEUE", "--scenario", "spike:5000000/1h", "--max", "1"], "expected at most 500,000 decisions", 2),
        (["QUEUE", "--min", "5", "--max", "4"], "expected --min not above --max, got 5 and 4", 2),
        (["QUEUE", "--lead", "soon"], "--lead", 2),
        (["QUEUE", "--compare", "magic"], "--compare", 2),
        (["QUEUE", "--trace", "/nonexistent"], "/nonexistent: No such file or directory", 1),
        (["/nonexistent.yaml"], "/nonexistent.yaml: No such file or directory", 3),
    ],
)
def test_what_cannot_be_simulated_is_told_in_a_sentence(
    queue: str, args: list[str], said: str, code: int
) -> None:
    result = simulate(*(queue if word == "QUEUE" else word for word in args))
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_name_finds_the_document_beside(
    queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert simulate("orders").stdout == simulate(queue).stdout
    assert simulate("orders", DELAYQ_CONFIG=queue).exit_code == 0
    assert (
        simulate("payments").stderr == "error: queue.yaml is the document of queue orders, not of payments\n"
    )


def test_a_name_needs_its_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = simulate("payments")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: queue payments: expected its document, which says how it scales, found no queue.yaml\n",
    )


def test_without_autoscaling_its_defaults_count(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(DOCUMENT.replace("  autoscaling: {maxReplicas: 100}\n", ""))
    result = simulate(str(path), "--scenario", SPIKE)
    assert result.stderr == f"note: {path} has no spec.autoscaling, so its defaults count\n"
    assert "were needed, more than maxReplicas" in result.stdout


def test_a_simulation_that_never_ends_is_ended(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_run, "MOST_LOOKS", 100)
    result = simulate(queue, "--scenario", "spike:3000@1m/1s", "--max", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: expected at most 100 decisions")


def test_many_changes_are_cut_and_that_is_said(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MOST_CHANGES", 1)
    assert "1 more changes are left out here; -o json has them all" in simulate(queue).stdout


def test_a_chart_is_drawn_into_a_file(queue: str, tmp_path: Path) -> None:
    result = simulate(
        queue, "--scenario", SPIKE, "--compare", "reactive", "--png", str(tmp_path / "chart.png")
    )
    assert (result.exit_code, result.stderr) == (0, f"wrote {tmp_path / 'chart.png'}\n")
    picture = (tmp_path / "chart.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 100_000


def test_without_the_extra_a_chart_names_it(
    queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def bare(name: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401 -- import's own signature
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *args, **named)

    monkeypatch.delitem(sys.modules, "delayq.simulation.picture", raising=False)
    monkeypatch.setattr(builtins, "__import__", bare)
    result = simulate(queue, "--scenario", SPIKE, "--png", str(tmp_path / "chart.png"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: --png needs matplotlib\nhint:  install delayq[chart]\n"


# a decision again


def test_an_events_annotation_gives_the_events_sentence_again(tmp_path: Path) -> None:
    policy = Policy(slots=4, max_replicas=7)
    decision = decide(Sample(overdue=100, handler_seconds=2.0), policy, begun(1, 1e9), 1e9 + 2)
    path = tmp_path / "decision.json"
    path.write_text(recorded(decision))
    for args, stdin in ((str(path), ""), ("-", recorded(decision))):
        result = simulate("--decision", args, stdin=stdin)
        assert (result.exit_code, result.stdout) == (0, f"{sentence(decision)}\n")


@pytest.mark.parametrize("text", [b"", b"nonsense", b"{}", b"[1]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_decision_is_refused(text: bytes) -> None:
    result = simulate("--decision", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: -: ")
    assert "delayq.dev/decision" in result.stderr

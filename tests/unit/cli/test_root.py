"""What holds for every command: how errors are said, and that only what is used is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.shell_completion import BashComplete
from delayq.cli import root

from tests.unit.cli.runner import run


def test_without_a_word_it_says_what_there_is() -> None:
    result = run()
    assert result.exit_code == 2
    assert all(f"\n  {name} " in result.stderr for name in root.COMMANDS)
    titles = [line for line in result.stderr.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", *(f"{title}:" for title in root.SECTIONS)]
    assert len(root.COMMANDS) == len({*root.COMMANDS})


def test_the_shell_completes_the_commands_of_all_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "delayq ")
    monkeypatch.setenv("COMP_CWORD", "1")
    completed = BashComplete(root.delayq, {}, "delayq", "_DELAYQ_COMPLETE").complete()
    assert {line.partition(",")[2] for line in completed.splitlines()} == {*root.COMMANDS}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nonsense"], "error: No such command 'nonsense'.\nhint:  delayq --help\n"),
        (["scheduel"], "error: No such command 'scheduel'. Did you mean 'schedule'"),
        (["tasks"], "error: No such command 'tasks'. Did you mean 'task'?\nhint:  delayq --help\n"),
        (["cancel"], "error: No such command 'cancel'. Did you mean 'task cancel'?"),
        (["purge"], "error: No such command 'purge'. Did you mean 'dlq purge'?"),
        (["task", "lst"], "error: No such command 'lst'. Did you mean 'list'?"),
        (["schedules", "next"], "error: No such command 'schedules': it is 'cron' since version 0.8."),
        (["--vresion"], "error: No such option '--vresion'"),
        (
            ["worker", "--config", "queue.yaml"],
            "error: No such option '--config'.\nhint:  since version 0.8, the document is the first argument: delayq",
        ),
        (["status"], "error: Missing argument 'QUEUE'.\nhint:  delayq status --help\n"),
        (["status", "q", "--interval", "-1s"], "error: '--interval': expected a duration like"),
        (["schedule", "q", "1", "--at", "2026-12-01"], "error: '--at': expected a time with its zone"),
        (["schedule", "q", "1", "--header", "x"], "error: '--header': expected name=value, got \"x\""),
        (["dlq", "redrive", "q", "x", "--rate", "fast"], "error: '--rate': expected a rate above 0"),
        (["schedule", "q", "--many", "/none"], "error: '--many': '/none': No such file or directory"),
    ],
)
def test_wrong_usage_is_said_in_one_form(args: list[str], said: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(said)


def test_a_missing_extra_is_named_by_the_command_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cli.worker", "cli.erase", "processes.worker", "processes.eraser", "service.shutdown"):
        monkeypatch.delitem(sys.modules, f"delayq.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert "install delayq[worker]" in run("worker").stderr
    result = run("erase", "queue.yaml", "--patience", "5s", "--yes")
    said = "error: delayq erase needs uvloop, which is not installed\nhint:  install delayq[worker]\n"
    assert (result.exit_code, result.stderr) == (1, said)
    assert run("--help").exit_code == 0


def loaded(*options: str) -> set[str]:
    """The modules that a fresh interpreter has after it loaded the root command."""
    code = "import sys, delayq.cli.root; print(*sys.modules)"
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_command_loads_only_what_it_uses_and_all_at_once_where_no_directory_is_trusted() -> None:
    """`delayq run` puts the directory of queue.yaml on the path after that: a queue.py there must not come first."""
    assert loaded().isdisjoint({"aiohttp", "uvloop", "rich", "prometheus_client", "delayq.processes.runtime"})
    every = {f"delayq.cli.{name}" for name in ("run", "scanner", "worker", "reaper")} | {"uvloop"}
    assert every <= loaded("-P")

"""The first argument of every command says what it works on. No option does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import click
import pytest
from delayq.cli.root import EXITS, delayq

from tests.processes import DELAYQ
from tests.unit.cli.runner import run
from tests.unit.cli.test_documents import RIGHT
from tools.reference.commands import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = {
    *("delayq run", "delayq validate", "delayq alerts", "delayq cron preview"),
    *("delayq scanner", "delayq worker", "delayq reaper", "delayq api"),
}
"""Commands on files of documents."""
NO_QUEUE = {"delayq explain", "delayq replay", "delayq crd", "delayq completion", "delayq api-token"}
CHOOSE = {"delayq scanner", "delayq worker", "delayq reaper", "delayq api"}
"""Processes: --queue chooses some queues of their files."""


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        inner = command.get_command(context, each)
        assert inner is not None
        yield from commands(inner, f"{name} {each}")


EVERY = dict(commands(delayq, "delayq"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(EVERY.keys() - NO_QUEUE))
def test_the_first_argument_is_a_queue_or_a_file(name: str) -> None:
    first, *_ = [each for each in EVERY[name].params if isinstance(each, click.Argument)]
    if name in FILES:
        assert first.name in {"documents", "file"}
    else:
        assert (first.name, first.type.name) in {("queue", "queue"), ("queues", "queue")}
    said = "DOCUMENT" if name in CHOOSE else "FILE|DOCUMENT" if name in FILES else "QUEUE"
    assert any(word in run(*name.split()[1:], "--help").stdout for word in said.split("|"))


@pytest.mark.parametrize("name", sorted(EVERY))
def test_no_option_names_a_document_and_only_processes_choose_queues_of_one(name: str) -> None:
    options = {opt for each in EVERY[name].params for opt in each.opts if opt.startswith("--")}
    assert options.isdisjoint({"--config", "--document", "--file"})
    assert ("--queue" in options) == (name in CHOOSE)


@pytest.mark.parametrize("name", sorted(name for name, each in EVERY.items() if each.epilog))
def test_the_examples_of_a_command_parse(here: Path, name: str) -> None:
    (here / "tasks.jsonl").touch()
    lines = str(EVERY[name].epilog).partition("Examples:\n")[2].splitlines()
    assert lines
    for line in lines:
        words = shlex.split(line.rpartition("|")[2])
        path = name.split()
        assert words[: len(path)] == path
        EVERY[name].make_context(name, words[len(path) :], **delayq.context_settings).close()


def test_the_exit_codes_of_the_help_are_those_of_the_page() -> None:
    """127 and above are those of a shell."""
    codes = {int(code) for code in re.findall(r"(?<=[:,] )(\d+)(?= )", EXITS)}
    assert codes == {code for code in MEANINGS if code < 127}


def test_a_mistyped_name_or_file_is_answered_by_the_nearest(here: Path) -> None:
    (here / "queue.yaml").write_text(RIGHT)
    named = run("status", "ordesr")
    assert (
        named.exit_code,
        "hint:  did you mean orders, of queue.yaml? Or name its document" in named.stderr,
    ) == (2, True)
    for command in ("status", "erase", "validate", "worker", "run", "acl"):
        result = run(command, "queeu.yaml")
        assert result.exit_code == 3, command
        assert "queeu.yaml: No such file or directory; did you mean queue.yaml?" in result.output, command


def test_a_shell_completes_a_queue_by_names_and_files(here: Path) -> None:
    (here / "queue.yaml").write_text(RIGHT)
    words = {"COMP_WORDS": "delayq status o", "COMP_CWORD": "2", "_DELAYQ_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [DELAYQ], env=os.environ | words, cwd=here, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,orders\nfile,o\n"


def test_acl_takes_the_prefix_from_the_document(here: Path) -> None:
    (here / "queue.yaml").write_text(RIGHT.replace("{standalone", "{keyPrefix: shop, standalone"))
    for queue in ("queue.yaml", "orders"):
        assert "~shop:{orders" in run("acl", queue).stdout, queue
    assert run("acl", "queue.yaml", "--key-prefix", "x").exit_code == 2


@pytest.mark.parametrize("name", ["worker", "reaper", "erase"])
def test_without_a_document_a_command_outside_of_a_pod_asks_for_one(name: str) -> None:
    result = run(name)
    said = "/etc/delayq/queue.yaml: No such file or directory: no document is mounted here; name one\n"
    assert (result.exit_code, result.stderr) == (3, said)

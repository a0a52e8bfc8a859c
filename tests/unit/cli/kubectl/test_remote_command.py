"""A command line on its way to a pod: the CLI's own words, the files of this machine as stdin and stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from delayq.cli.kubectl import passed
from delayq.cli.kubectl.passed import RAW, Passed
from delayq.cli.kubectl.remote_command import ASKING, RemoteCommand, remote_command
from delayq.cli.kubectl.root import PASSED, kubectl_dq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENT = "/etc/delayq/queue.yaml"


def leaf(*path: str) -> Passed:
    command = passed.command(path[0])
    for word in path[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    assert isinstance(command, Passed)
    return command


def taken(*words: str, path: tuple[str, ...]) -> RemoteCommand:
    command = leaf(*path)
    ctx = command.make_context("x", list(words))  # not closed: its files are read by the test
    return remote_command(command, ctx.meta[RAW], ctx.params)


def leaves() -> Iterator[tuple[str, ...]]:
    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from below(inner, (*path, name))
        else:
            yield path

    for name in PASSED:
        yield from below(passed.command(name), (name,))


@pytest.mark.parametrize(
    ("path", "words", "sent"),
    [
        (("forecast",), ["orders"], []),
        (
            ("top",),
            ["--once", "--interval", "5s", "orders", "-o", "json"],
            ["--once", "--interval=5s", "--output=json"],
        ),
        (("task", "get"), ["orders", "order-7"], ["order-7"]),
        (("schedule",), ["orders", "--in=1h30m", '{"a": 1}'], ["--in=1h30m", '{"a": 1}']),
        (
            ("schedule",),
            ["orders", "--header", "a=1", "--header", "b=-2", "1"],
            ["--header=a=1", "--header=b=-2", "1"],
        ),
        (("schedule",), ["orders", "--", "-5"], ["-5"]),
        (("schedule",), ["orders", "--id=-n", "-n", "shop", "--bytes", "x"], ["--id=-n", "--bytes", "x"]),
        (
            ("dlq", "redrive"),
            ["orders", "--rate", "50/s", "--group=1", "--dry-run"],
            ["--group=1", "--rate=50/s", "--dry-run"],
        ),
        (("dlq", "redrive"), ["orders", "b", "a", "c"], ["b", "a", "c"]),
        (("top",), ["orders", "--port-forward", "--redis-namespace=data"], []),
    ],
)
def test_what_was_typed_is_sent(path: tuple[str, ...], words: list[str], sent: list[str]) -> None:
    """All of it but what is kubectl's, and the queue is the pod's document."""
    said = taken(*words, path=path).argv(DOCUMENT)
    at = said.index("--")
    assert said[: len(path)] == list(path)
    assert said[at + 1] == DOCUMENT
    split = next((nth for nth, word in enumerate(sent) if not word.startswith("--")), len(sent))
    assert sorted(said[len(path) : at]) == sorted(sent[:split])
    assert said[at + 2 :] == sent[split:], "arguments keep their order"


def test_a_file_that_is_read_goes_along_on_stdin(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"payload": 1}\n')
    found = taken("orders", "--many", str(file), path=("schedule",))
    assert "--many=-" in found.argv(DOCUMENT)
    assert f"--many={file}" in found.argv(DOCUMENT, here=True)
    with found.source:
        assert found.source.read() == b'{"payload": 1}\n'
    assert found.reads_stdin
    file.write_text("17")
    found = taken("orders", f"@{file}", path=("schedule",))
    assert found.argv(DOCUMENT)[-1] == "-"
    with found.source:
        assert found.source.read() == b"17"


def test_a_file_that_is_written_is_stdout_there(tmp_path: Path) -> None:
    file = tmp_path / "dead.jsonl"
    found = taken("orders", "--to", str(file), path=("dlq", "export"))
    assert found.argv(DOCUMENT) == ["dlq", "export", "--", DOCUMENT]
    assert found.target is not None
    assert taken("orders", "-", path=("schedule",)).reads_stdin
    assert not taken("orders", "1", path=("schedule",)).reads_stdin


@pytest.mark.parametrize(
    ("words", "terminal", "long"),
    [
        ("top orders", True, True),
        ("top orders -o json", False, True),
        ("top orders --once", False, False),
        ("task cancel orders --tag a", True, True),
        ("task cancel orders --tag a --yes", False, True),
        ("task cancel orders --tag a --dry-run", False, True),
        ("task cancel orders order-7", False, False),
        ("task reschedule orders --kind a --all --in 1h", True, True),
        ("task reschedule orders order-7 --in 1h", False, False),
        ("dlq purge orders --all", True, True),
        ("dlq purge orders order-7", True, False),
        ("dlq purge orders order-7 --yes", False, False),
        ("dlq redrive orders --all", False, True),
    ],
)
def test_only_what_draws_or_asks_takes_the_terminal(words: str, *, terminal: bool, long: bool) -> None:
    """What takes long is ended in the pod, too, if it is interrupted here."""
    path = next(path for path in leaves() if words.split()[: len(path)] == [*path])
    found = taken(*words.split()[len(path) :], path=path)
    assert (found.terminal, found.long) == (terminal, long)


def test_every_command_that_may_ask_is_known() -> None:
    asking = {path[-1] for path in leaves() if any(each.name == "yes" for each in leaf(*path).params)}
    assert asking == {*ASKING, "schedule"}


def test_every_command_has_the_options_of_the_cli() -> None:
    """But those that say where the queue is, which the cluster knows."""
    for path in leaves():
        names = {each.name for each in leaf(*path).params}
        assert not names & {"redis", "shards", "key_prefix"}
        assert {"forwarded", "namespace", "context", "kubeconfig"} <= names
        done = CliRunner().invoke(kubectl_dq, [*path, "--help"], prog_name="kubectl dq")
        assert done.exit_code == 0
        assert done.output.startswith(f"Usage: kubectl dq {' '.join(path)} ")

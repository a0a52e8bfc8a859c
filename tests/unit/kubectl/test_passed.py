"""A command line on its way to a pod: its words are not read, but the files of this machine become stdin and stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from delayq.cli.exits import CommandError
from delayq_operator.kubectl import passed
from delayq_operator.kubectl.passed import DRAWS, Passed, call, measured
from delayq_operator.kubectl.root import COMMANDS, kubectl_dq, split

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = "/etc/delayq/queue.yaml"
LEARNT: dict[str, Any] = {"scaling": {"leadTimeSeconds": 11, "handlerMilliseconds": 480}, "replicas": 3}


def leaves() -> Iterator[Passed]:
    def below(command: click.Command) -> Iterator[Passed]:
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield from below(inner)
        elif isinstance(command, Passed):
            yield command

    for name in COMMANDS:
        command = kubectl_dq.get_command(click.Context(kubectl_dq), name)
        assert command is not None
        yield from below(command)


@pytest.mark.parametrize(
    ("path", "rest", "sent", "files"),
    [
        ("top", "--once --interval 5s -o json", "--once --interval 5s -o json", {}),
        ("task get", "order-7", "order-7", {}),
        ("schedule", '{"a":1} --in=1h30m --id=-n', '{"a":1} --in=1h30m --id=-n', {}),
        ("schedule", "-- -5", "-- -5", {}),
        ("schedule", "- --in 1h", "- --in 1h", {"stdin": "-"}),
        ("schedule", "@order.json --in 1h", "- --in 1h", {"stdin": "order.json"}),
        ("schedule", "--many tasks.jsonl", "--many=-", {"stdin": "tasks.jsonl"}),
        ("schedule", "--many=- --in 1h", "--many=- --in 1h", {"stdin": "-"}),
        ("schedule", "-- --many @x", "-- --many @x", {}),
        ("dlq export", "--all --to dead.jsonl", "--all", {"stdout": "dead.jsonl"}),
        ("dlq export", "--all --to=-", "--all", {}),
        ("dlq redrive", "b a --rate 50/s", "b a --rate 50/s", {}),
    ],
)
def test_what_was_typed_is_sent(path: str, rest: str, sent: str, files: dict[str, str]) -> None:
    """All of it but the files of this machine, and the queue is the pod's document."""
    found = call(path.split(), rest.split())
    assert found.words == (*path.split(), DOCUMENT, *sent.split())
    assert found.files == files


@pytest.mark.parametrize("option", ["--redis", "--redis=redis://elsewhere", "--shards", "--key-prefix=x"])
def test_only_the_delayqueue_says_where_its_tasks_are(option: str) -> None:
    with pytest.raises(CommandError, match="the DelayQueue says where its tasks are"):
        call(["task", "list"], [option])


@pytest.mark.parametrize(
    ("words", "terminal"),
    [
        ("top", True),
        ("top -o json", False),
        ("top -ojson", False),
        ("top --once", False),
        ("task cancel --tag a", True),
        ("task cancel --tag a -o json", True),
        ("task cancel --tag a --yes", False),
        ("task cancel --tag a --dry-run", False),
        ("task cancel order-7", False),
        ("task reschedule --kind a --all --in 1h", True),
        ("task reschedule order-7 --in 1h", False),
        ("dlq purge --all", True),
        ("dlq purge order-7", True),
        ("dlq purge order-7 --yes", False),
        ("dlq redrive --all", False),
    ],
)
def test_only_what_draws_or_asks_takes_the_terminal(words: str, *, terminal: bool) -> None:
    name = next(name for name in (*DRAWS, "dlq redrive") if words.startswith(name))
    assert call(name.split(), words.removeprefix(name).split()).terminal == terminal


def test_every_command_that_may_ask_is_known() -> None:
    asking = {" ".join(each.path) for each in leaves() if any(p.name == "yes" for p in each.shown.params)}
    assert asking == DRAWS.keys() - {"top"} | {"schedule"}, (
        "`schedule` asks only about a queue without a document"
    )


def test_every_file_of_a_command_is_one_of_this_machine() -> None:
    kinds = (click.File, click.Path)
    found = {p.opts[0] for each in leaves() for p in each.shown.params if isinstance(p.type, kinds)}
    assert found == passed.FILES.keys()


def test_every_command_has_help_for_a_delayqueue() -> None:
    """With the options of the CLI, but those that say where the queue is."""
    for each in leaves():
        done = CliRunner().invoke(kubectl_dq, [*each.path, "--help"], prog_name="kubectl dq")
        assert done.exit_code == 0
        assert done.output.startswith(f"Usage: kubectl dq {' '.join(each.path)} [OPTIONS] NAME")
        assert not {"--redis", "--shards", "--key-prefix"} & {*done.output.split()}
        assert (
            done.output
            == CliRunner()
            .invoke(kubectl_dq, [*each.path, "orders", "-o", "json", "-h"], prog_name="kubectl dq")
            .output
        )


def test_a_name_behind_options_is_refused_with_the_order() -> None:
    """Whether --once has a value is not known here."""
    done = CliRunner().invoke(kubectl_dq, ["top", "--once", "orders"], prog_name="kubectl dq")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: expected NAME first, got --once\nhint:  kubectl dq top --help\n",
    )


@pytest.mark.parametrize(
    ("words", "options", "left"),
    [
        ("status orders -n shop", "--namespace=shop", "status orders"),
        ("-nshop status -n=other", "--namespace=shop --namespace=other", "status"),
        ("--context a --kubeconfig=b top orders", "--context=a --kubeconfig=b", "top orders"),
        ("schedule orders -- -n", "", "schedule orders -- -n"),
        ("schedule orders --id=-n", "", "schedule orders --id=-n"),
    ],
)
def test_options_of_kubectl_are_taken_wherever_they_are(words: str, options: str, left: str) -> None:
    assert split(words.split()) == (tuple(options.split()), left.split())
    with pytest.raises(click.UsageError, match="expected a value, got none"):
        split(["status", "-n"])


def test_lead_and_handler_time_of_a_forecast_are_those_that_were_learnt() -> None:
    queue = {"spec": {"autoscaling": {"leadTimeSeconds": "auto"}}, "status": LEARNT}
    assert measured(queue) == ["--handler-time=480ms", "--lead=11s"]
    reported = {"spec": {"autoscaling": {"leadTimeSeconds": 60}}, "status": LEARNT}
    assert measured(reported) == ["--handler-time=480ms"], "the one of the document is in force"
    assert measured({"spec": {}}) == []


def test_a_fixed_number_of_workers_is_shown_which_the_pods_do_not_have() -> None:
    """The document in the pods leaves spec.worker.replicas out."""
    assert measured({"spec": {"worker": {"replicas": 4}}}) == ["--max=4"]
    assert measured({"spec": {"worker": {"replicas": 4}, "autoscaling": {}}}) == []

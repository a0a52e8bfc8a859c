"""kubectl dq status: one DelayQueue, or a table of those of a namespace. status_text.py formats them."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Final

import click

from delayq.cli.exits import USAGE, CommandError
from delayq.cli.inputs import Read
from delayq.cli.kubectl import queues, status_text
from delayq.cli.kubectl.options import complete_name, kubectl_options
from delayq.cli.output import Table, emit, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.cli.output import Output

OUTPUTS: Final = ("table", "wide", "name", "json", "yaml")
PLACES: Final = '--output=jsonpath={.metadata.namespace} {.metadata.name}{"\\n"}'


def _output(text: str) -> str:
    if text in OUTPUTS or text.startswith("jsonpath="):
        return text
    raise ValueError(f"expected {', '.join(OUTPUTS)} or jsonpath=TEMPLATE, got {text}")


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_name)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All queues of all namespaces.")
@click.option("-l", "--selector", metavar="LABELS", help="Only queues with these labels, like team=shop.")
@click.option("-w", "--watch", is_flag=True, help="Print a queue again when it changes, until Ctrl-C.")
@click.option(
    "--events",
    "shown",
    type=click.IntRange(0, 1000),
    default=8,
    show_default=True,
    help="Number of events to show, the newest ones.",
)
@click.option(
    "-o",
    "--output",
    type=Read("format", _output),
    default="table",
    show_default=True,
    help="table, wide, json, yaml, name or jsonpath=TEMPLATE; the last two as kubectl get writes them.",
)
@kubectl_options
def status(
    kubectl: Kubectl,
    *,
    name: str | None,
    everywhere: bool,
    selector: str | None,
    watch: bool,
    shown: int,
    output: str,
) -> None:
    """Show the status of a queue: tasks, workers, the last scaling decision, conditions, pods, events.

    Without NAME, a line for each queue of the namespace.
    """
    if name is not None and (everywhere or selector):
        raise CommandError(
            "--all-namespaces, --selector: expected no NAME, got one", "-n names its namespace", USAGE
        )
    among = (("--all-namespaces", everywhere), (f"--selector={selector}", selector))
    which = [name] if name else [option for option, chosen in among if chosen]
    if output == "name" or output.startswith("jsonpath="):
        if watch:
            raise CommandError("--watch: expected -o table, wide, json or yaml", "kubectl get --watch", USAGE)
        click.echo(kubectl.text("get", queues.KIND, *which, f"--output={output}").rstrip("\n"))
        return

    def show(namespace: str | None, changed: str) -> None:
        if name is not None:
            _one(kubectl, name, shown, output)
            return
        these = [f"--field-selector=metadata.name={changed}"] if changed else which
        found = kubectl.items("get", queues.KIND, *these, namespace=namespace)
        if found or not changed:
            _side_by_side(found, output, everywhere=everywhere)

    if not watch:
        show(None, "")
        if name is None:
            _silent(kubectl, ["--all-namespaces"] if everywhere else [])
    else:
        for namespace, changed in _changes(kubectl, which):
            show(namespace, changed)


def _one(kubectl: Kubectl, name: str, shown: int, output: str) -> None:
    now = time.time()
    queue = queues.one(kubectl, name)
    view = status_text.View(
        queue=queue,
        pods=queues.pods(kubectl, queue),
        lease=queues.lease(kubectl, queue),
        events=queues.events(kubectl, queue)[-shown:] if shown else [],
    )
    emit(_format(output), status_text.data(view), "\n".join(status_text.lines(view, now)))


def _side_by_side(found: list[Object], output: str, *, everywhere: bool) -> None:
    table: Table | str = status_text.overview(
        found, time.time(), everywhere=everywhere, wide=output == "wide"
    )
    emit(_format(output), [status_text.summary(each) for each in found], table)


def _silent(kubectl: Kubectl, which: list[str]) -> None:
    """Say on stderr which operators do not answer: the table may be old."""
    now = time.time()
    for lease in queues.leases(kubectl, queues.CONFIGS, *which):
        if silence := status_text.silent(lease, now):
            note(f"note: {silence}")


def _format(output: str) -> Output:
    return "json" if output == "json" else "yaml" if output == "yaml" else "table"


def _changes(kubectl: Kubectl, which: list[str]) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each existing queue, then of each changed queue."""
    argv = kubectl.argv("get", queues.KIND, *which, "--watch", PLACES)
    child = kubectl.start(argv, stdout=subprocess.PIPE)
    assert child.stdout is not None  # noqa: S101 -- for the type checker
    try:
        for line in child.stdout:
            namespace, _, name = line.decode().strip().partition(" ")
            yield namespace, name
    finally:
        child.terminate()
        child.wait()

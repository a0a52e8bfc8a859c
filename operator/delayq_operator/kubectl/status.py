"""kubectl dq status: one DelayQueue, or a table of those of a namespace. text.py formats them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import click
from delayq.cli.formats import clean
from delayq.cli.output import emit, note

from delayq_operator.base import names
from delayq_operator.kubectl import queues, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq_operator.kubectl.kubectl import Kubectl

KUBECTLS: Final = ("-o", "--output", "-w", "--watch")
"""Options with which `kubectl get` writes the DelayQueues."""
EVENTS: Final = 8
"""The newest events that are shown."""


@click.command(cls=queues.Words, name_metavar="[NAME]")
@click.pass_obj
def status(kubectl: Kubectl, words: tuple[str, ...]) -> None:
    """Show the status of a queue: tasks, workers, the last scaling decision, conditions, pods, events.

    Without NAME, a line for each queue of the namespace; -A and -l LABELS choose as in `kubectl get`. With -o or -w,
    kubectl get writes the DelayQueues itself.
    """
    if any(word.startswith(KUBECTLS) for word in words):
        program, *args = kubectl.argv("get", queues.KIND, *words)
        os.execvp(program, [program, *args])  # noqa: S606 -- no shell
    if len(words) == 1 and not words[0].startswith("-"):
        click.echo("\n".join(_one(kubectl, words[0])))
    else:
        _side_by_side(kubectl, words)


def _one(kubectl: Kubectl, name: str) -> Iterator[str]:
    queue, now = kubectl.json("get", queues.KIND, name), time.time()
    found = queues.leases(kubectl, f"--field-selector=metadata.name={names.config(name)}")
    yield from text.lines(queue, found[0] if found else None, now)
    about = f"--field-selector=involvedObject.kind={names.DELAY_QUEUE.kind},involvedObject.name={name}"
    yield from _table(kubectl, "pods", queues.selector(name))
    yield from _table(kubectl, "events", about, "--sort-by=.lastTimestamp", last=EVENTS)


def _table(kubectl: Kubectl, *what: str, last: int = 0) -> Iterator[str]:
    heading, *lines = kubectl.text("get", *what).splitlines() or [""]
    if lines:
        yield from map(clean, ("", heading, *lines[-last:]))


def _side_by_side(kubectl: Kubectl, words: tuple[str, ...]) -> None:
    everywhere, now = {"-A", "--all-namespaces"} & {*words}, time.time()
    emit("table", None, text.overview(kubectl.items(queues.KIND, *words), now, everywhere=bool(everywhere)))
    # The table may be old: name the operators that do not answer.
    for lease in queues.leases(kubectl, queues.CONFIGS, *everywhere):
        if silence := text.silent(lease, now):
            note(f"note: {silence}")

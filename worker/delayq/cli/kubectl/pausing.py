"""kubectl dq pause, resume: two ways to stop, which stop different things."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from delayq_operator.base import names

from delayq.cli.exits import Wrong
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.naming import name_argument
from delayq.cli.kubectl.options import kubectl_options

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object

MANAGER: Final = "--field-manager=kubectl-dq"
PAUSED: Final = (
    "{name} paused: the operator leaves its children alone, whatever the spec says.\n"
    "Tasks run on, with as many workers as there are now. To start no more tasks: kubectl dq pause {name} --hold"
)
HELD: Final = {
    "Hold": (
        "{name} held: workers are replaced by ones that stay and claim nothing; tasks that run now are finished.\n"
        "Tasks can be scheduled all the time, and wait. kubectl dq resume {name} --hold starts them"
    ),
    "HoldAndDrain": (
        "{name} held: workers finish the tasks they run, and go.\n"
        "Tasks can be scheduled all the time, and wait. kubectl dq resume {name} --hold brings workers back"
    ),
}


@click.command()
@name_argument
@click.option("--hold", is_flag=True, help="Start no more tasks: spec.stopPolicy Hold. Workers stay.")
@click.option("--drain", is_flag=True, help="The same with HoldAndDrain: workers go, too.")
@kubectl_options
def pause(kubectl: Kubectl, *, name: str, hold: bool, drain: bool) -> None:
    """Keep the operator's hands off a queue, or stop its tasks.

    Without an option, the annotation delayq.dev/paused is set: the operator changes none of the children until it is
    removed, whatever the spec says. Scaling waits, too. Tasks run on.

    With --hold or --drain, spec.stopPolicy is set: no task is started any more. What is scheduled waits; what runs is
    finished. A tool that applies the DelayQueue from elsewhere may set it back.
    """
    if hold and drain:
        raise Wrong("--hold and --drain: expected one of them, got both")
    queue = queues.one(kubectl, name)
    if hold or drain:
        _stop_policy(kubectl, name, queue, "HoldAndDrain" if drain else "Hold")
    elif _is_paused(queue):
        click.echo(f"{name} is paused already")
    else:
        kubectl.text("annotate", MANAGER, "--overwrite", queues.KIND, name, f"{names.PAUSED}=true")
        click.echo(PAUSED.format(name=name))


@click.command()
@name_argument
@click.option("--hold", is_flag=True, help="Start tasks again: spec.stopPolicy None.")
@kubectl_options
def resume(kubectl: Kubectl, *, name: str, hold: bool) -> None:
    """Let the operator go on with a queue; with --hold, let its tasks go on."""
    queue = queues.one(kubectl, name)
    if hold:
        _stop_policy(kubectl, name, queue, "None")
    elif _is_paused(queue):
        kubectl.text("annotate", MANAGER, queues.KIND, name, f"{names.PAUSED}-")
        click.echo(f"{name} resumed: its children follow the spec again")
    else:
        click.echo(f"{name} is not paused")
    held = "None" if hold else queue["spec"].get("stopPolicy", "None")
    if held != "None":
        click.echo(
            f"note: spec.stopPolicy is {held}: no task is started. kubectl dq resume {name} --hold", err=True
        )
    if hold and _is_paused(queue):
        click.echo(
            f"note: the operator is paused and does nothing about it. kubectl dq resume {name}", err=True
        )


def _is_paused(queue: Object) -> bool:
    return bool((queue["metadata"].get("annotations") or {}).get(names.PAUSED) == "true")


def _stop_policy(kubectl: Kubectl, name: str, queue: Object, policy: str) -> None:
    if queue["spec"].get("stopPolicy", "None") == policy:
        click.echo(f"{name}: spec.stopPolicy is {policy} already")
        return
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    kubectl.text("patch", MANAGER, queues.KIND, name, "--type=merge", f"--patch={patch}")
    click.echo(
        HELD[policy].format(name=name) if policy in HELD else f"{name} goes on: tasks are started again"
    )
    if policy != "None" and _is_paused(queue):
        click.echo(
            f"note: the operator is paused and does nothing about it. kubectl dq resume {name}", err=True
        )

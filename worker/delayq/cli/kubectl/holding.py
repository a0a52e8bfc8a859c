"""kubectl dq hold, unhold: stop and restart claims. kubectl dq reconcile pause, resume: the same for the operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from delayq_operator.base import names

from delayq.cli.kubectl import queues
from delayq.cli.kubectl.options import kubectl_options, name_argument, where_params
from delayq.cli.output import note

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object

MANAGER: Final = "--field-manager=kubectl-dq"
RESULTS: Final = {
    "Hold": "{name} held: running tasks finish, new workers claim nothing, scheduled tasks wait.\n"
    "To start tasks again: kubectl dq unhold {name}",
    "HoldAndDrain": "{name} held: running tasks finish, then the workers stop; scheduled tasks wait.\n"
    "To start workers and tasks again: kubectl dq unhold {name}",
    "None": "{name} unheld: workers start tasks again",
}


@click.command()
@name_argument
@click.option("--drain", is_flag=True, help="Also stop the workers once their running tasks finish.")
@kubectl_options
def hold(kubectl: Kubectl, *, name: str, drain: bool) -> None:
    """Stop starting tasks of a queue. Running tasks finish; clients can still schedule tasks, which wait.

    This sets spec.stopPolicy to Hold, with --drain to HoldAndDrain. A tool that applies the DelayQueue may reset it.
    """
    _stop_policy(kubectl, name, "HoldAndDrain" if drain else "Hold")


@click.command()
@name_argument
@kubectl_options
def unhold(kubectl: Kubectl, *, name: str) -> None:
    """Start tasks of a queue again. This sets spec.stopPolicy to None."""
    _stop_policy(kubectl, name, "None")


@click.group(params=where_params())
def reconcile() -> None:
    """Pause or resume the operator for a queue. Tasks continue; to stop them, use hold."""


@reconcile.command()
@name_argument
@kubectl_options
def pause(kubectl: Kubectl, *, name: str) -> None:
    """Stop the operator from changing the children of a queue, and from scaling it. Tasks continue.

    This sets the annotation delayq.dev/paused.
    """
    if _is_paused(queues.one(kubectl, name)):
        click.echo(f"reconciliation of {name} is already paused")
        return
    kubectl.text("annotate", MANAGER, "--overwrite", queues.KIND, name, f"{names.PAUSED}=true")
    click.echo(
        f"reconciliation of {name} paused: the operator changes no children and does not scale. Tasks continue.\n"
        f"To continue: kubectl dq reconcile resume {name}. To stop tasks: kubectl dq hold {name}"
    )


@reconcile.command()
@name_argument
@kubectl_options
def resume(kubectl: Kubectl, *, name: str) -> None:
    """Let the operator change the children of a queue and scale it again."""
    queue = queues.one(kubectl, name)
    if _is_paused(queue):
        kubectl.text("annotate", MANAGER, queues.KIND, name, f"{names.PAUSED}-")
        click.echo(f"reconciliation of {name} resumed: the children follow the spec again")
    else:
        click.echo(f"reconciliation of {name} is not paused")
    if (policy := _policy(queue)) != "None":
        note(
            f"note: spec.stopPolicy is {policy}, so no task is started. To start tasks: kubectl dq unhold {name}"
        )


def _is_paused(queue: Object) -> bool:
    return bool((queue["metadata"].get("annotations") or {}).get(names.PAUSED) == "true")


def _policy(queue: Object) -> str:
    return str(queue["spec"].get("stopPolicy", "None"))


def _stop_policy(kubectl: Kubectl, name: str, policy: str) -> None:
    queue = queues.one(kubectl, name)
    if _policy(queue) == policy:
        click.echo(f"spec.stopPolicy of {name} is already {policy}")
    else:
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        kubectl.text("patch", MANAGER, queues.KIND, name, "--type=merge", f"--patch={patch}")
        click.echo(RESULTS[policy].format(name=name))
    if _is_paused(queue):
        note(f"note: reconciliation is paused, so nothing changes until: kubectl dq reconcile resume {name}")

"""kubectl dq hold, unhold: stop and restart claims. kubectl dq reconcile pause, resume: the same for the operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from delayq.cli.output import note

from delayq_operator.base import names
from delayq_operator.kubectl import queues

if TYPE_CHECKING:
    from delayq_operator.kubectl.kubectl import Kubectl


@click.command()
@queues.NAME
@click.option("--drain", is_flag=True, help="Also stop the workers once their running tasks finish.")
@click.pass_obj
def hold(kubectl: Kubectl, name: str, *, drain: bool) -> None:
    """Stop starting tasks of a queue. Running tasks finish; clients can still schedule tasks, which wait.

    This sets spec.stopPolicy to Hold, with --drain to HoldAndDrain. A tool that applies the DelayQueue may reset it.
    """
    then = "then the workers stop" if drain else "new workers claim nothing"
    said = f"{name} held: running tasks finish, {then}; scheduled tasks wait."
    spec = {"stopPolicy": "HoldAndDrain" if drain else "Hold"}
    _change(kubectl, name, f"{said}\nTo start tasks again: kubectl dq unhold {name}", spec=spec)


@click.command()
@queues.NAME
@click.pass_obj
def unhold(kubectl: Kubectl, name: str) -> None:
    """Start tasks of a queue again. This sets spec.stopPolicy to None."""
    _change(kubectl, name, f"{name} unheld: workers start tasks again", spec={"stopPolicy": "None"})


@click.group()
def reconcile() -> None:
    """Pause or resume the operator for a queue. Tasks continue; to stop them, use hold."""


@reconcile.command()
@queues.NAME
@click.pass_obj
def pause(kubectl: Kubectl, name: str) -> None:
    """Stop the operator from changing the children of a queue, and from scaling it. Tasks continue.

    This sets the annotation delayq.dev/paused.
    """
    said = f"reconciliation of {name} paused: the operator changes no children and does not scale. Tasks continue."
    then = f"To continue: kubectl dq reconcile resume {name}. To stop tasks: kubectl dq hold {name}"
    _change(kubectl, name, f"{said}\n{then}", metadata={"annotations": {names.PAUSED: "true"}})


@reconcile.command()
@queues.NAME
@click.pass_obj
def resume(kubectl: Kubectl, name: str) -> None:
    """Let the operator change the children of a queue and scale it again."""
    said = f"reconciliation of {name} resumed: the children follow the spec again"
    _change(kubectl, name, said, metadata={"annotations": {names.PAUSED: None}})


def _change(kubectl: Kubectl, name: str, said: str, **change: Any) -> None:  # noqa: ANN401 -- a merge patch
    """Change a DelayQueue, say so, and note what else stops its tasks or its operator."""
    patch = ("--field-manager=kubectl-dq", "--type=merge", f"--patch={json.dumps(change)}")
    queue = kubectl.json("patch", queues.KIND, name, *patch)
    click.echo(said)
    held, annotations = queue["spec"].get("stopPolicy", "None"), queue["metadata"].get("annotations", {})
    if "spec" in change and annotations.get(names.PAUSED) == "true":
        note(f"note: reconciliation is paused, so nothing changes until: kubectl dq reconcile resume {name}")
    if "spec" not in change and held != "None":
        note(
            f"note: spec.stopPolicy is {held}, so no task is started. To start tasks: kubectl dq unhold {name}"
        )

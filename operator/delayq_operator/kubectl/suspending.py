"""kubectl dq suspend, resume: tasks of a queue. kubectl dq reconcile suspend, resume: its operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from delayq.cli.output import note
from delayq.contract.files import CONFIG_FILE

from delayq_operator.base import names
from delayq_operator.base.phrases import BY_COMMAND
from delayq_operator.kubectl import queues

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.kubectl.kubectl import Kubectl


@click.command()
@queues.NAME
@click.option("--drain", is_flag=True, help="Also stop the workers once their running tasks finish.")
@click.pass_obj
def suspend(kubectl: Kubectl, name: str, *, drain: bool) -> None:
    """Stop starting tasks of a queue. Running tasks finish; clients can still schedule tasks, which wait.

    This sets spec.suspend, and spec.suspendPolicy to Hold, with --drain to Drain. A tool that applies the DelayQueue
    may reset them.
    """
    then = "then the workers stop" if drain else "new workers claim nothing"
    said = f"{name} suspended: running tasks finish, {then}; scheduled tasks wait."
    spec = {"suspend": True, "suspendPolicy": "Drain" if drain else "Hold"}
    _change(kubectl, name, f"{said}\nTo start tasks again: kubectl dq resume {name}", spec=spec)


@click.command()
@queues.NAME
@click.pass_obj
def resume(kubectl: Kubectl, name: str) -> None:
    """Start tasks of a queue again. This sets spec.suspend to false; it does not undo `delayq suspend`."""
    queue = _change(kubectl, name, spec={"suspend": False})
    if not by_command(queue):
        click.echo(f"{name} resumed: workers start tasks again")
        return
    click.echo(f"{name}: spec.suspend is false")
    command = f"kubectl exec deploy/{names.scanner(name)} -- delayq resume {CONFIG_FILE}"
    note(f"note: still suspended by delayq suspend; to start tasks: {command}")


def by_command(queue: Object) -> bool:
    """Whether the operator reports that `delayq suspend` is in effect."""
    conditions = queue.get("status", {}).get("conditions", ())
    return any(each["type"] == "Suspended" and BY_COMMAND in each["message"] for each in conditions)


@click.group()
def reconcile() -> None:
    """Suspend or resume the operator for a queue. Tasks continue; to stop them, use suspend."""


@reconcile.command("suspend")
@queues.NAME
@click.pass_obj
def suspend_reconciliation(kubectl: Kubectl, name: str) -> None:
    """Stop the operator from changing the children of a queue, and from scaling it. Tasks continue.

    This sets the annotation delayq.dev/suspend-reconciliation.
    """
    said = f"reconciliation of {name} suspended: the operator changes no children and does not scale. Tasks continue."
    then = f"To continue: kubectl dq reconcile resume {name}. To stop tasks: kubectl dq suspend {name}"
    _change(
        kubectl, name, f"{said}\n{then}", metadata={"annotations": {names.SUSPEND_RECONCILIATION: "true"}}
    )


@reconcile.command("resume")
@queues.NAME
@click.pass_obj
def resume_reconciliation(kubectl: Kubectl, name: str) -> None:
    """Let the operator change the children of a queue and scale it again."""
    said = f"reconciliation of {name} resumed: the children follow the spec again"
    _change(kubectl, name, said, metadata={"annotations": {names.SUSPEND_RECONCILIATION: None}})


def _change(kubectl: Kubectl, name: str, said: str = "", **change: Any) -> Object:  # noqa: ANN401 -- a merge patch
    """Change a DelayQueue, say so, and note what else stops its tasks or its operator."""
    patch = ("--field-manager=kubectl-dq", "--type=merge", f"--patch={json.dumps(change)}")
    queue = kubectl.json("patch", queues.KIND, name, *patch)
    if said:
        click.echo(said)
    annotations = queue["metadata"].get("annotations", {})
    if "spec" in change and annotations.get(names.SUSPEND_RECONCILIATION) == "true":
        note(
            f"note: reconciliation is suspended, so nothing changes until: kubectl dq reconcile resume {name}"
        )
    if "spec" not in change and queue["spec"].get("suspend"):
        note(f"note: spec.suspend is true, so no task is started. To start tasks: kubectl dq resume {name}")
    return queue

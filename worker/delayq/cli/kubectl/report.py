"""kubectl dq report: one file to send to somebody who helps, without secrets and without payloads."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

import delayq as package
from delayq.cli.exits import FAILED, Wrong
from delayq.cli.kubectl import queues, status_text
from delayq.cli.kubectl.allowed import LEFT_OUT, shown
from delayq.cli.kubectl.gather import Bundle, everything
from delayq.cli.kubectl.naming import name_argument
from delayq.cli.kubectl.options import kubectl_options
from delayq.cli.kubectl.private import replace
from delayq.cli.output import note

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object

LINES: Final = 1000
README: Final = """\
kubectl dq report of DelayQueue {namespace}/{name}, {time}, by kubectl-dq {version}

status.txt       what kubectl dq status says
delayqueue.yaml  the DelayQueue, with its status
children.yaml    what the operator made of it
pods.yaml        its pods
events.yaml      events of all of these
secrets.txt      which Secrets it names are there; not what they hold
doctor.txt       what delayq doctor says in a scanner pod
versions.json    kubectl and API server
pods/            logs and metrics of each pod; *.previous.log is of the container before the last restart
operator/        the same of the operator

An allow-list decides what is in it: numbers, names, times, and words of Kubernetes and delayq. Every other string
reads {left_out}. Payloads, Secrets, variables, headers, annotations and what handlers write are not in it, nor
what a message quotes; of a URL, scheme and host are. Ids of tasks, names, host names and addresses are in it: look
through it before you send it.
"""


@click.command()
@name_argument
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to.  [default: ./delayq-NAME-TIME.tar.gz]",
)
@click.option(
    "--tail",
    "lines",
    type=click.IntRange(1, 1_000_000),
    default=LINES,
    show_default=True,
    help="Lines of each log.",
)
@kubectl_options
def report(kubectl: Kubectl, *, name: str, path: Path | None, lines: int) -> None:
    """Write a file for support: the resource, its children, pods, events, logs and metrics.

    It shows numbers, names, times and the words of Kubernetes and delayq. It shows no Secret, no payload, and
    nothing that a handler writes; `kubectl logs` has that.
    """
    now = time.time()
    queue = queues.one(kubectl, name)
    found = Bundle()
    found.text("status.txt", lambda: _status(kubectl, queue, now))
    everything(kubectl, queue, found, lines)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    title = f"delayq-{name}-{stamp}"
    about = _about(queue, stamp) + "".join(f"\nNot gathered: {each}" for each in found.notes)
    target = path or Path(f"{title}.tar.gz")
    _write(target, title, {"README.txt": f"{about}\n", **found.files})
    for each in found.notes:
        note(f"note: not gathered: {each}")
    click.echo(
        f"wrote {target}: {len(found.files) + 1} files, without secrets; look through it before you send it"
    )


def _status(kubectl: Kubectl, queue: Object, now: float) -> str:
    """What kubectl dq status says of the objects as the report shows them."""
    pods, events = queues.pods(kubectl, queue), queues.events(kubectl, queue)
    view = status_text.View(queue=shown(queue), pods=list(map(shown, pods)), events=list(map(shown, events)))
    return "\n".join(status_text.told(view, now)) + "\n"


def _about(queue: Object, stamp: str) -> str:
    namespace, name = queues.place(queue)
    return README.format(
        namespace=namespace, name=name, time=stamp, version=package.__version__, left_out=LEFT_OUT
    )


def _write(target: Path, title: str, files: dict[str, str]) -> None:
    """Write the archive; only its owner can read it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{title}/{path}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    try:
        replace(target, packed.getvalue())
    except OSError as error:
        raise Wrong(f"{target}: {error.strerror}", "-o tells another place", FAILED) from None

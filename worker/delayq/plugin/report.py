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
from delayq.cli.output import note
from delayq.plugin import queues, story
from delayq.plugin.gather import Wish, bundle, everything
from delayq.plugin.naming import name_argument
from delayq.plugin.options import kubectl_options
from delayq.plugin.private import replace
from delayq.plugin.redact import redacted

if TYPE_CHECKING:
    from delayq.plugin.gather import Bundle
    from delayq.plugin.kubectl import Kubectl, Object

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

Left out: what Secrets hold, also where it stood elsewhere; values of variables and headers; arguments of commands other
than delayq's; passwords in URLs and their queries; whatever else looks like a password, a token or a key; annotations
of others. Of workers' logs {handlers}. Ids of tasks, names, host names and addresses are in it: look through it before
you send it.
"""
QUIET: Final = (
    "what handlers write is left out, and so are the messages of their errors: payloads may be in them"
)
LOUD: Final = "also what handlers write is in it, as asked: payloads may be in them"


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
@click.option(
    "--handler-logs", "handlers", is_flag=True, help="Also what handlers write; it may have payloads in it."
)
@kubectl_options
def report(kubectl: Kubectl, *, name: str, path: Path | None, lines: int, handlers: bool) -> None:
    """Write a file for support: the resource, its children, pods, events, logs and metrics.

    Secrets are left out, and values of the Secrets that the queue names are looked for everywhere else. Payloads of
    tasks are never read; what handlers write to their logs is left out, for payloads may be in it.
    """
    now = time.time()
    queue = queues.one(kubectl, name)
    found = bundle(kubectl, queue, handlers=handlers)
    found.text("status.txt", lambda: _status(kubectl, queue, now, found))
    everything(kubectl, queue, found, Wish(lines=lines, handlers=handlers))
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    title = f"delayq-{name}-{stamp}"
    about = _about(queue, stamp, handlers=handlers) + "".join(
        f"\nNot gathered: {each}" for each in found.notes
    )
    target = path or Path(f"{title}.tar.gz")
    _write(target, title, {"README.txt": f"{about}\n", **found.files})
    for each in found.notes:
        note(f"note: not gathered: {each}")
    click.echo(
        f"wrote {target}: {len(found.files) + 1} files, without secrets; look through it before you send it"
    )


def _status(kubectl: Kubectl, queue: Object, now: float, found: Bundle) -> str:
    pods = [redacted(each, found.scrub) for each in queues.pods(kubectl, queue)]  # whose last words are told
    view = story.View(queue=queue, pods=pods, events=queues.events(kubectl, queue))
    return "\n".join(story.told(view, now)) + "\n"


def _about(queue: Object, stamp: str, *, handlers: bool) -> str:
    namespace, name = queues.place(queue)
    said = LOUD if handlers else QUIET
    return README.format(
        namespace=namespace, name=name, time=stamp, version=package.__version__, handlers=said
    )


def _write(target: Path, title: str, files: dict[str, str]) -> None:
    """Write the archive, for nobody else to read."""
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

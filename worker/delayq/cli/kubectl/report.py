"""kubectl dq report: one file to attach to a support request, without secrets and without payloads.

allowed.py decides which parts of objects, logs and metrics a report shows.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import yaml
from delayq_operator.base import names

import delayq as package
from delayq.cli.exits import FAILED, CommandError
from delayq.cli.kubectl import allowed, queues, status_text
from delayq.cli.kubectl.options import kubectl_options, name_argument
from delayq.cli.output import note
from delayq.contract.files import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.kubectl.kubectl import Kubectl, Object

LINES: Final = 1000
CHILDREN: Final = (
    "configmaps,services,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy,"
    "deployments.apps,replicasets.apps,cronjobs.batch,jobs.batch"
)
OPERATOR: Final = "--selector=app.kubernetes.io/component=operator"
GENERATED: Final = "[0-9bcdfghjklmnpqrstvwxz]"
"""The characters of generated names: Kubernetes leaves vowels out, so no child of another queue matches."""
LONGEST_BASE: Final = 58
"""Kubernetes shortens a name to it before it adds five random characters."""
METRICS_SECONDS: Final = 5
METRICS: Final = f"""\
import sys, urllib.request
try:
    answer = urllib.request.urlopen("http://127.0.0.1:{names.METRICS_PORT}/metrics", timeout={METRICS_SECONDS})
    print(answer.read().decode())
except OSError as error:
    sys.exit("no metrics on port {names.METRICS_PORT}, " + str(getattr(error, "reason", error)))
"""
"""Program for a pod: prints its metrics, or one line that says why there are none."""
README: Final = f"""\
kubectl dq report of DelayQueue {{namespace}}/{{name}}, {{time}}, by kubectl-dq {package.__version__}

An allow-list decides what these files show: numbers, names, times, and words of Kubernetes and delayq. Every other
string reads {allowed.LEFT_OUT}. They show no Secret, payload, variable, header or annotation, and nothing that a
handler writes. They do show task ids, names, host names and addresses: read the files before you send them.
"""


@click.command()
@name_argument
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Path of the new file.  [default: ./delayq-NAME-TIME.tar.gz]",
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
    """Write an archive for support: the resource, its children, pods, events, logs and metrics.

    It contains numbers, names, times and terms of Kubernetes and delayq. It contains no Secret, no payload, and no
    output of a handler; for that, use `kubectl logs`.
    """
    queue = queues.one(kubectl, name)
    bundle = Bundle(kubectl, queues.place(queue)[0])
    bundle.gather(queue, lines)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    about = README.format(namespace=bundle.namespace, name=name, time=stamp)
    about += "".join(f"\nNot gathered: {each}" for each in bundle.notes)
    target = path or Path(f"delayq-{name}-{stamp}.tar.gz")
    files = {"README.txt": f"{about}\n", **bundle.files}
    _write(target, f"delayq-{name}-{stamp}", files)
    for each in bundle.notes:
        note(f"note: not gathered: {each}")
    click.echo(f"wrote {target}: {len(files)} files, without secrets; read it before you send it")


class Bundle:
    """The files of a report, and a note for each missing file."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        """`kubectl` has the user's rights."""
        self._kubectl, self.namespace = kubectl, namespace
        self.files: dict[str, str] = {}
        self.notes: list[str] = []

    def gather(self, queue: Object, lines: int) -> None:
        """Add all files of a queue, with the last `lines` of each log."""
        name, mine = queues.place(queue)[1], queues.selector(queues.place(queue)[1])
        self._objects("delayqueue.yaml", lambda: [queue])
        self._objects("children.yaml", lambda: self._items(CHILDREN, mine))
        pods = self._objects("pods.yaml", lambda: self._items("pods", mine))
        events = self._objects("events.yaml", lambda: _about(name, self._items("events")))
        self._text("status.txt", lambda: self._status(queue, pods, events))
        self._text("versions.json", lambda: self._kubectl.text("version", "--output=json"))
        self._text("doctor.txt", lambda: self._doctor(pods))
        operators = self._objects(
            "operator/pods.yaml", lambda: self._kubectl.items("get", "pods", "--all-namespaces", OPERATOR)
        )
        for under, those in (("pods", pods), ("operator", operators)):
            for pod in those:
                self._pod(under, pod, lines)

    def _items(self, *args: str) -> list[Object]:
        return self._kubectl.items("get", *args, namespace=self.namespace)

    def _text(self, path: str, make: Callable[[], str]) -> None:
        try:
            self.files[path] = make()
        except CommandError as error:
            self.notes.append(f"{path}: {allowed.sentence(error.message)}")

    def _objects(self, path: str, make: Callable[[], list[Object]]) -> list[Object]:
        """Add the shown parts of objects, and return them."""
        found: list[Object] = []

        def text() -> str:
            found.extend(map(allowed.shown, make()))
            return yaml.safe_dump_all(found, allow_unicode=True, sort_keys=False, width=1_000_000)

        self._text(path, text)
        return found

    def _pod(self, under: str, pod: Object, lines: int) -> None:
        """Add the metrics and logs of a pod, including the log before the last restart."""
        namespace, name = queues.place(pod)

        def run(path: str, show: Callable[[str], str], *args: str) -> None:
            text = self._kubectl.text
            self._text(f"{under}/{name}/{path}", lambda: show(text(*args, namespace=namespace)))

        for each in pod.get("status", {}).get("containerStatuses") or ():
            container = each["name"]
            asked = ("logs", name, f"--container={container}", f"--tail={lines}")
            run(f"{container}.log", allowed.log, *asked)
            if each.get("restartCount"):
                run(f"{container}.previous.log", allowed.log, *asked, "--previous")
        if _runs(pod) and queues.component(pod) != "reaper":
            run("metrics.txt", allowed.metrics, "exec", name, "--", "python3", "-c", METRICS)

    def _status(self, queue: Object, pods: list[Object], events: list[Object]) -> str:
        lease = queues.lease(self._kubectl, queue)
        view = status_text.View(queue=allowed.shown(queue), pods=pods, events=events, lease=lease)
        return "\n".join(status_text.lines(view, time.time())) + "\n"

    def _doctor(self, pods: list[Object]) -> str:
        scanners = [pod for pod in pods if _runs(pod) and queues.component(pod) == "scanner"]
        if not scanners:
            raise CommandError("no scanner pod runs")
        words = ("exec", queues.place(scanners[0])[1], "--container=scanner", "--", "delayq", "doctor")
        answer = self._kubectl.run(*words, CONFIG_FILE, namespace=self.namespace)
        return "\n".join(map(allowed.sentence, f"{answer.stdout}{answer.stderr}".splitlines()))


def _runs(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def _about(name: str, events: list[Object]) -> list[Object]:
    """Return the events of a queue, its children, and their ReplicaSets, Jobs and pods, by name.

    An event does not name the owner of its object, and pods may be gone.
    """
    ours = re.compile("|".join(map(_generated, sorted({child for _, child in names.children(name)}))))
    found = []
    for each in events:
        about = each.get("involvedObject") or {}
        of, kind = str(about.get("name", "")), about.get("kind")
        if of == name or (kind != names.DELAY_QUEUE.kind and ours.fullmatch(of)):
            found.append(each)
    return sorted(found, key=queues.when)


def _generated(child: str) -> str:
    """Return a pattern of the names of a child and of the objects that Kubernetes makes for it."""
    exact = f"{re.escape(child)}(?:-{GENERATED}+){{0,2}}"
    return (
        f"{exact}|{re.escape(child[:LONGEST_BASE])}{GENERATED}{{5}}" if len(child) >= LONGEST_BASE else exact
    )


def _write(target: Path, title: str, files: dict[str, str]) -> None:
    """Write a new archive that only its owner can read."""
    try:
        with (
            open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for path, text in files.items():
                content = text.encode()
                entry = tarfile.TarInfo(f"{title}/{path}")
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror}", "-o names another file", FAILED) from None

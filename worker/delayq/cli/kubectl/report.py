"""kubectl dq report: one file to attach to a support request, without secrets and without payloads.

Not here: what of an object, a log or a metric may be shown (allowed.py).
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import yaml
from delayq_operator.base import names

import delayq as package
from delayq.cli.exits import FAILED, Wrong
from delayq.cli.kubectl import allowed, queues, status_text
from delayq.cli.kubectl.naming import name_argument
from delayq.cli.kubectl.options import kubectl_options
from delayq.cli.output import note
from delayq.contract.files import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.cli.kubectl.kubectl import Kubectl, Object

LINES: Final = 1000
CHILDREN: Final = (
    "configmaps,services,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy,"
    "deployments.apps,replicasets.apps,cronjobs.batch,jobs.batch"
)
OPERATOR: Final = "--selector=app.kubernetes.io/component=operator"
METRICS: Final = (
    "import urllib.request as u; "
    f"print(u.urlopen('http://127.0.0.1:{names.METRICS_PORT}/metrics', timeout=5).read().decode())"
)
README: Final = f"""\
kubectl dq report of DelayQueue {{namespace}}/{{name}}, {{time}}, by kubectl-dq {package.__version__}

An allow-list decides what these files show: numbers, names, times, and words of Kubernetes and delayq. Every other
string reads {allowed.LEFT_OUT}. They show no Secret, payload, variable, header or annotation, and nothing that a
handler writes. They do show task ids, names, host names and addresses: read the files before you send them.
"""


class Bundle:
    """The files of a report, and a note for each that could not be gathered."""

    def __init__(self, kubectl: Kubectl) -> None:
        """The rights are those of the user of kubectl."""
        self.kubectl = kubectl
        self.files: dict[str, str] = {}
        self.notes: list[str] = []

    def text(self, path: str, make: Callable[[], str]) -> None:
        """Add a text, unless it cannot be read."""
        try:
            self.files[path] = make()
        except Wrong as error:
            self.notes.append(f"{path}: {allowed.sentence(error.message)}")

    def objects(self, path: str, make: Callable[[], Iterable[Object]]) -> list[Object]:
        """Add what may be shown of objects; return them as they are."""
        found: list[Object] = []

        def written() -> str:
            found.extend(make())
            bodies = map(allowed.shown, found)
            return yaml.safe_dump_all(bodies, allow_unicode=True, sort_keys=False, width=1_000_000)

        self.text(path, written)
        return found

    def pod(self, under: str, pod: Object, lines: int) -> None:
        """Add the logs of a pod, those before a restart included, and its metrics."""
        namespace, name = queues.place(pod)
        status = pod.get("status", {})
        restarts = {each["name"]: each.get("restartCount") for each in status.get("containerStatuses") or ()}
        containers = [each["name"] for each in pod["spec"]["containers"]]
        for container in containers:
            args = ["logs", name, f"--container={container}", f"--tail={lines}"]
            self._run(f"{under}/{name}/{container}.log", allowed.log, args, namespace)
            if restarts.get(container):
                path = f"{under}/{name}/{container}.previous.log"
                self._run(path, allowed.log, [*args, "--previous"], namespace)
        if status.get("phase") == "Running" and queues.component(pod) != "reaper":
            ask = ["exec", name, f"--container={containers[0]}", "--", "python3", "-c", METRICS]
            self._run(f"{under}/{name}/metrics.txt", allowed.metrics, ask, namespace)

    def _run(self, path: str, show: Callable[[str], str], args: list[str], namespace: str) -> None:
        self.text(path, lambda: show(self.kubectl.text(*args, namespace=namespace)))


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
    """Write a file for support: the resource, its children, pods, events, logs and metrics.

    It shows numbers, names, times and the words of Kubernetes and delayq. It shows no Secret, no payload, and
    nothing that a handler writes; `kubectl logs` has that.
    """
    now = time.time()
    queue = queues.one(kubectl, name)
    found = Bundle(kubectl)
    _gather(found, queue, lines, now)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    title = f"delayq-{name}-{stamp}"
    about = README.format(namespace=queues.place(queue)[0], name=name, time=stamp)
    about += "".join(f"\nNot gathered: {each}" for each in found.notes)
    target = path or Path(f"{title}.tar.gz")
    _write(target, title, {"README.txt": f"{about}\n", **found.files})
    for each in found.notes:
        note(f"note: not gathered: {each}")
    click.echo(f"wrote {target}: {len(found.files) + 1} files, without secrets; read it before you send it")


def _gather(into: Bundle, queue: Object, lines: int, now: float) -> None:
    kubectl, (namespace, name) = into.kubectl, queues.place(queue)
    mine = queues.selector(name)
    into.objects("delayqueue.yaml", lambda: [queue])
    into.objects("children.yaml", lambda: kubectl.items("get", CHILDREN, mine, namespace=namespace))
    pods = into.objects("pods.yaml", lambda: kubectl.items("get", "pods", mine, namespace=namespace))
    events = into.objects(
        "events.yaml", lambda: _events(kubectl.items("get", "events", namespace=namespace), name)
    )
    into.text("status.txt", lambda: _status(queue, pods, events, now))
    into.text("versions.json", lambda: kubectl.text("version", "--output=json"))
    into.text("doctor.txt", lambda: _doctor(kubectl, namespace, pods))
    operators = into.objects(
        "operator/pods.yaml", lambda: kubectl.items("get", "pods", "--all-namespaces", OPERATOR)
    )
    for pod in pods:
        into.pod("pods", pod, lines)
    for pod in operators:
        into.pod("operator", pod, lines)


def _events(events: list[Object], name: str) -> list[Object]:
    """Choose the events of a queue, of its children and of their pods, by their names."""
    about = [(str((each.get("involvedObject") or {}).get("name", "")), each) for each in events]
    return sorted((each for of, each in about if of == name or of.startswith(f"{name}-")), key=queues.when)


def _status(queue: Object, pods: list[Object], events: list[Object], now: float) -> str:
    """Return what kubectl dq status says of the objects as the report shows them."""
    view = status_text.View(
        queue=allowed.shown(queue),
        pods=[allowed.shown(each) for each in pods],
        events=[allowed.shown(each) for each in events],
    )
    return "\n".join(status_text.told(view, now)) + "\n"


def _doctor(kubectl: Kubectl, namespace: str, pods: list[Object]) -> str:
    running = (pod for pod in pods if pod.get("status", {}).get("phase") == "Running")
    scanner = next((queues.place(pod)[1] for pod in running if queues.component(pod) == "scanner"), None)
    if scanner is None:
        raise Wrong("no scanner pod runs")
    words = ("exec", scanner, "--container=scanner", "--", "delayq", "doctor", CONFIG_FILE)
    answer = kubectl.ask(*words, namespace=namespace)
    return "\n".join(map(allowed.sentence, f"{answer.out}{answer.err}".splitlines()))


def _write(target: Path, title: str, files: dict[str, str]) -> None:
    """Write a new archive that only its owner can read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{title}/{path}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    try:
        with open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(packed.getvalue())
    except OSError as error:
        raise Wrong(f"{target}: {error.strerror}", "-o names another file", FAILED) from None

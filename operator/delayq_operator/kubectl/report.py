"""kubectl dq report: one file to attach to a support request, without secrets and without payloads.

allowed.py decides which parts of the DelayQueue, logs and metrics it shows. Of other objects it has tables of kubectl.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import delayq as package
import yaml
from delayq.cli.exits import FAILED, CommandError
from delayq.cli.output import note
from delayq.contract.files import CONFIG_FILE

from delayq_operator.base import names
from delayq_operator.kubectl import allowed, queues, remote
from delayq_operator.kubectl.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.kube.objects import Object

    from delayq_operator.kubectl.kubectl import Kubectl

CHILDREN: Final = (
    "configmaps,services,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy,"
    "deployments.apps,replicasets.apps,cronjobs.batch,jobs.batch"
)
EVENTS: Final = (
    "--output=custom-columns=OBJECT:.involvedObject.name,KIND:.involvedObject.kind,LAST:.lastTimestamp,TYPE:.type,"
    "REASON:.reason,COUNT:.count,FROM:.source.component"
)
OPERATOR: Final = ("--all-namespaces", "--selector=app.kubernetes.io/component=operator")
METRICS: Final = f"""\
import sys, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:{names.METRICS_PORT}/metrics", timeout=5).read().decode())
except OSError as error:
    sys.exit(f"no metrics on port {names.METRICS_PORT}, {{error}}")
"""
"""Program for a pod: prints its metrics, or one line that says why there are none."""
README: Final = f"""\
kubectl dq report of DelayQueue {{}}/{{}}, {{}}, by kubectl-dq {package.__version__}

An allow-list decides what these files show: numbers, names, times, and words of Kubernetes and delayq. Every other
string reads {allowed.LEFT_OUT}. They show no Secret, payload, variable, header or annotation, and nothing that a
handler writes. They do show task ids, names, host names and addresses: read the files before you send them.
"""


@click.command()
@queues.NAME
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Path of the new file.")
@click.option(
    "--tail", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Lines of each log."
)
@click.pass_obj
def report(kubectl: Kubectl, name: str, *, output: str | None, tail: int) -> None:
    """Write an archive for support: the resource, its children, pods, events, logs and metrics.

    It contains numbers, names, times and terms of Kubernetes and delayq. It contains no Secret, no payload, and no
    output of a handler; for that, use `kubectl logs`.
    """
    queue, stamp = kubectl.json("get", queues.KIND, name), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    files, missing = dict[str, str](), list[str]()
    for file, show, args in _sources(kubectl, name, tail):
        try:
            files[file] = show(_text(kubectl, args))
        except CommandError as error:
            missing.append(f"{file}: {allowed.sentence(error.message)}")
    about = README.format(*queues.place(queue), stamp)
    files["delayqueue.yaml"] = yaml.safe_dump(allowed.shown(queue), allow_unicode=True, sort_keys=False)
    files["README.txt"] = "\n".join([about, *(f"Not gathered: {each}" for each in missing), ""])
    target = Path(output or f"delayq-{name}-{stamp}.tar.gz")
    _write(target, f"delayq-{name}-{stamp}", files)
    for each in missing:
        note(f"note: not gathered: {each}")
    click.echo(f"wrote {target}: {len(files)} files, without secrets; read it before you send it")


Source = tuple[str, "Callable[[str], str]", tuple[str, ...]]
"""A file, what it shows of an output, and the arguments with which kubectl writes that."""


def _text(kubectl: Kubectl, args: tuple[str, ...]) -> str:
    """Return what kubectl writes; `doctor` exits with the worst of its findings."""
    answer = kubectl.run(*args)
    if answer.returncode != 0 and not answer.stdout:
        raise refusal(answer.stderr)
    return answer.stdout


def _sources(kubectl: Kubectl, name: str, tail: int) -> Iterator[Source]:
    mine = queues.selector(name)
    yield "children.txt", str, ("get", CHILDREN, mine, "--output=wide")
    yield "pods.txt", str, ("get", "pods", mine, "--output=wide")
    yield "operator/pods.txt", str, ("get", "pods", *OPERATOR, "--output=wide")
    yield (
        "events.txt",
        lambda text: _of_queue(name, text),
        ("get", "events", "--sort-by=.lastTimestamp", EVENTS),
    )
    yield "versions.json", str, ("version", "--output=json")
    yield "doctor.txt", _sentences, ("exec", *remote.scanner(name), "--", "delayq", "doctor", CONFIG_FILE)
    for under, which in (("pods", (mine,)), ("operator", OPERATOR)):
        answer = kubectl.run("get", "pods", *which, "--output=json")
        for pod in json.loads(answer.stdout)["items"] if answer.returncode == 0 else ():
            for file, show, args in _of_pod(pod, tail):
                yield f"{under}/{queues.place(pod)[1]}/{file}", show, args


def _of_pod(pod: Object, tail: int) -> Iterator[Source]:
    """Yield the logs of a pod, also those before the last restart, and its metrics."""
    namespace, name = queues.place(pod)
    here, status = f"--namespace={namespace}", pod.get("status", {})
    for each in status.get("containerStatuses") or ():
        asked = ("logs", name, here, f"--container={each['name']}", f"--tail={tail}")
        yield f"{each['name']}.log", allowed.log, asked
        if each.get("restartCount"):
            yield f"{each['name']}.previous.log", allowed.log, (*asked, "--previous")
    if status.get("phase") == "Running" and pod["metadata"]["labels"].get(names.COMPONENT_LABEL) != "reaper":
        yield "metrics.txt", allowed.metrics, ("exec", name, here, "--", "python3", "-c", METRICS)


def _sentences(text: str) -> str:
    return "\n".join(map(allowed.sentence, text.splitlines()))


def _of_queue(name: str, events: str) -> str:
    """Return the events of a queue, its children, and their ReplicaSets, Jobs and pods, by name: pods may be gone.

    Those of a queue whose name begins with that of a child come along.
    """
    # Kubernetes shortens a name to 58 characters before it adds five random ones.
    ours = (f"{name} ", "OBJECT ", *(child[:58] for _, child in names.children(name)))
    return "".join(f"{line}\n" for line in events.splitlines() if line.startswith(ours))


def _write(target: Path, title: str, files: dict[str, str]) -> None:
    """Write a new archive that only its owner can read."""
    try:
        with (
            open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for path, text in files.items():
                entry = tarfile.TarInfo(f"{title}/{path}")
                entry.size, entry.mode, entry.mtime = len(text.encode()), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(text.encode()))
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror}", "-o names another file", FAILED) from None

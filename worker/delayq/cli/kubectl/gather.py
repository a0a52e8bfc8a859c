"""What a report is made of: kubectl is asked for one thing after the other. What cannot be had is noted.

Not here: what of it may be shown (allowed.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import yaml
from delayq_operator.base import names
from delayq_operator.desired import referenced

from delayq.cli.exits import Wrong
from delayq.cli.kubectl import allowed, queues
from delayq.cli.kubectl.surroundings import model
from delayq.contract import SpecError
from delayq.contract.files import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.cli.kubectl.kubectl import Kubectl, Object

KINDS: Final = (
    "serviceaccounts,configmaps,services,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy,"
    "deployments.apps,replicasets.apps,cronjobs.batch,jobs.batch"
)
OPERATOR: Final = "--selector=app.kubernetes.io/component=operator"
WIDTH: Final = 1_000_000  # a text that is broken over lines cannot be searched
METRICS: Final = (
    "import urllib.request as u; "
    f"print(u.urlopen('http://127.0.0.1:{names.METRICS_PORT}/metrics', timeout=5).read().decode())"
)


@dataclass
class Bundle:
    """The files of a report, and notes on what could not be had."""

    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def text(self, path: str, make: Callable[[], str], moot: Callable[[], bool] = lambda: False) -> None:
        """Add a text, if it can be had; `moot` tells whether its absence is to be expected."""
        try:
            self.files[path] = make()
        except Wrong as error:
            if not moot():
                self.notes.append(f"{path}: {allowed.sentence(error.message)}")

    def objects(self, path: str, make: Callable[[], Iterable[Object]]) -> list[Object]:
        """Add what may be shown of objects; return them as they are, for what follows from them."""
        found: list[Object] = []

        def written() -> str:
            found.extend(make())
            bodies = [allowed.shown(each) for each in found]
            return yaml.safe_dump_all(bodies, allow_unicode=True, sort_keys=False, width=WIDTH)

        self.text(path, written)
        return found


def everything(kubectl: Kubectl, queue: Object, into: Bundle, lines: int) -> None:
    """Gather all there is about one queue, of each log so many lines."""
    namespace, name = queues.place(queue)

    def listed(*args: str) -> Callable[[], list[Object]]:
        return lambda: kubectl.items("get", *args, namespace=namespace)

    into.objects("delayqueue.yaml", lambda: [queue])
    into.objects("children.yaml", listed(KINDS, queues.selector(name)))
    pods = into.objects("pods.yaml", listed("pods", queues.selector(name)))
    into.objects("events.yaml", lambda: _of(kubectl.items("get", "events", namespace=namespace), name))
    into.text("secrets.txt", lambda: _table(kubectl, queue))
    into.text("versions.json", lambda: kubectl.text("version", "--output=json"))
    into.text("doctor.txt", lambda: _doctor(kubectl, namespace, pods))
    for pod in pods:
        _pod(kubectl, pod, "pods", into=into, lines=lines)
    operators = into.objects("operator/pods.yaml", lambda: _operators(kubectl))
    for pod in operators:
        _pod(kubectl, pod, "operator", into=into, lines=lines)


def _of(events: list[Object], name: str) -> list[Object]:
    """Choose the events of a queue, of its children and of their pods, by their names."""
    mine = (name, f"{name}-")
    return sorted((each for each in events if _about(each).startswith(mine)), key=queues.when)


def _about(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("name", ""))


def _table(kubectl: Kubectl, queue: Object) -> str:
    """Tell which Secrets there are, and how many keys each has: the API server's table, which holds no data."""
    try:
        wanted = sorted(referenced(model(queue)).secrets)
    except SpecError as error:
        raise Wrong(str(error)) from None
    return (
        kubectl.text("get", "secrets", *wanted, namespace=queues.place(queue)[0])
        if wanted
        else "none is named\n"
    )


def _operators(kubectl: Kubectl) -> list[Object]:
    found = kubectl.items("get", "pods", "--all-namespaces", OPERATOR)
    return [
        pod
        for pod in found
        if any((each.get("command") or [""])[0] == names.OPERATOR for each in pod["spec"]["containers"])
    ]


def _doctor(kubectl: Kubectl, namespace: str, pods: list[Object]) -> str:
    scanner = next(
        (
            str(pod["metadata"]["name"])
            for pod in pods
            if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == "scanner"
            and pod.get("status", {}).get("phase") == "Running"
        ),
        None,
    )
    if scanner is None:
        raise Wrong("no scanner pod runs")
    words = ("exec", scanner, "--container=scanner", "--", "delayq", "doctor", CONFIG_FILE)
    answer = kubectl.ask(*words, namespace=namespace)
    return "\n".join(map(allowed.sentence, f"{answer.out}{answer.err}".splitlines()))


def _pod(kubectl: Kubectl, pod: Object, under: str, *, into: Bundle, lines: int) -> None:
    """Add the logs and the metrics of one pod."""
    namespace, name = queues.place(pod)
    statuses = {each["name"]: each for each in pod.get("status", {}).get("containerStatuses") or ()}
    for container in (each["name"] for each in pod["spec"]["containers"]):
        for previous in (False, True) if statuses.get(container, {}).get("restartCount") else (False,):
            path = f"{under}/{name}/{container}{'.previous' if previous else ''}.log"
            into.text(path, lambda c=container, p=previous: _log(kubectl, pod, c, lines, previous=p))  # type: ignore[misc]
    if pod.get("status", {}).get("phase") == "Running":
        path = f"{under}/{name}/metrics.txt"
        into.text(path, lambda: _metrics(kubectl, namespace, pod), moot=lambda: _completed(kubectl, pod))


def _log(kubectl: Kubectl, pod: Object, container: str, lines: int, *, previous: bool) -> str:
    namespace, name = queues.place(pod)
    args = [f"--container={container}", f"--tail={lines}", *(["--previous"] if previous else [])]
    return allowed.log(kubectl.text("logs", name, *args, namespace=namespace))


def _completed(kubectl: Kubectl, pod: Object) -> bool:
    """Whether it is done by now, as a reaper's pod soon is: then there is nobody to ask."""
    namespace, name = queues.place(pod)
    try:
        now = kubectl.json("get", "pod", name, namespace=namespace)
    except Wrong:
        return False
    return now.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _metrics(kubectl: Kubectl, namespace: str, pod: Object) -> str:
    """Ask through the API server; where a NetworkPolicy keeps that out, from within the pod."""
    name = pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}:{names.METRICS_PORT}/proxy/metrics"
    answer = kubectl.ask("get", "--raw", path)
    if answer.code == 0:
        return allowed.metrics(answer.out)
    container = f"--container={pod['spec']['containers'][0]['name']}"
    words = ("exec", name, container, "--", "python3", "-c", METRICS)
    return allowed.metrics(kubectl.text(*words, namespace=namespace))

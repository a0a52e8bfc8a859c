"""What a report is made of: kubectl asked for one thing after the other. What cannot be had is noted, and left out."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq_operator import names
from delayq_operator.desired import referenced

from delayq.cli.exits import Wrong
from delayq.contract import SpecError
from delayq.contract.files import CONFIG_FILE
from delayq.plugin import queues
from delayq.plugin.loglines import own
from delayq.plugin.redact import redacted
from delayq.plugin.scrub import Scrubber
from delayq.plugin.surroundings import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from delayq.plugin.kubectl import Kubectl, Object

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
    """The files of a report; nothing comes in unscrubbed."""

    scrub: Callable[[str], str]
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def text(self, path: str, make: Callable[[], str], moot: Callable[[], bool] = lambda: False) -> None:
        """Add a text, if it can be had; where that is `moot`, nobody misses it."""
        self._add(path, lambda: self.scrub(make()), moot)

    def objects(self, path: str, make: Callable[[], Iterable[Object]]) -> list[Object]:
        """Add objects, scrubbed text by text; return them as they are, for what follows from them."""
        found: list[Object] = []

        def written() -> str:
            found.extend(make())
            shown = [redacted(each, self.scrub) for each in found]
            return yaml.safe_dump_all(shown, allow_unicode=True, sort_keys=False, width=WIDTH)

        self._add(path, written)
        return found

    def _add(self, path: str, make: Callable[[], str], moot: Callable[[], bool] = lambda: False) -> None:
        try:
            self.files[path] = make()
        except Wrong as error:
            if not moot():
                self.notes.append(self.scrub(f"{path}: {error.message}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What of the logs is asked for."""

    lines: int
    handlers: bool
    """Whether also what handlers say."""


def bundle(kubectl: Kubectl, queue: Object, *, handlers: bool) -> Bundle:
    """Begin a report that knows which secrets must not be in it, and, unless asked for, whose last words."""
    notes: list[str] = []
    values = list(_secrets(kubectl, queue, notes))
    for body in (queue, *_quietly(lambda: queues.pods(kubectl, queue))):
        values += _literals(body)
    worker = None if handlers else names.worker(queues.place(queue)[1])
    return Bundle(Scrubber(values, worker), notes=notes)


def _quietly(make: Callable[[], list[Object]]) -> list[Object]:
    try:
        return make()
    except Wrong:
        return []  # it is asked for again, and then noted


def _secrets(kubectl: Kubectl, queue: Object, notes: list[str]) -> Iterator[str]:
    """Read the Secrets that the queue names: to know what to look for, and for nothing else."""
    try:
        wanted = sorted(referenced(model(queue)).secrets)
    except SpecError:
        wanted = []
    for name in wanted:
        try:
            data = kubectl.json("get", "secret", name, namespace=queues.place(queue)[0]).get("data") or {}
        except Wrong as error:
            notes.append(
                f"Secret {name} could not be read to look for its values in the rest: {error.message}"
            )
            continue
        yield from (base64.b64decode(value).decode(errors="replace") for value in data.values())


def _literals(value: Any, named: str = "") -> Iterator[str]:  # noqa: ANN401 -- JSON
    """Yield values of variables and headers: long ones are looked for in the rest, too."""
    if isinstance(value, dict):
        if named in ("env", "httpHeaders") and isinstance(value.get("value"), str):
            yield from [value["value"]] if len(value["value"]) >= LONG else []
        elif named in ("env", "headers"):
            yield from (each for each in value.values() if isinstance(each, str) and len(each) >= LONG)
        for key, each in value.items():
            yield from _literals(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _literals(each, named)


LONG: Final = 8


def everything(kubectl: Kubectl, queue: Object, into: Bundle, wish: Wish) -> None:
    """Gather all there is about one queue."""
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
        _pod(kubectl, pod, "pods", into=into, wish=wish)
    operators = into.objects("operator/pods.yaml", lambda: _operators(kubectl))
    for pod in operators:
        _pod(kubectl, pod, "operator", into=into, wish=Wish(lines=wish.lines, handlers=True))


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
    return f"{answer.out}{answer.err}"


def _pod(kubectl: Kubectl, pod: Object, under: str, *, into: Bundle, wish: Wish) -> None:
    """Add the logs and the metrics of one pod."""
    namespace, name = queues.place(pod)
    statuses = {each["name"]: each for each in pod.get("status", {}).get("containerStatuses") or ()}
    for container in (each["name"] for each in pod["spec"]["containers"]):
        for previous in (False, True) if statuses.get(container, {}).get("restartCount") else (False,):
            path = f"{under}/{name}/{container}{'.previous' if previous else ''}.log"
            into.text(path, lambda c=container, p=previous: _log(kubectl, pod, c, wish, previous=p))  # type: ignore[misc]
    if pod.get("status", {}).get("phase") == "Running":
        path = f"{under}/{name}/metrics.txt"
        into.text(path, lambda: _metrics(kubectl, namespace, pod), moot=lambda: _completed(kubectl, pod))


def _log(kubectl: Kubectl, pod: Object, container: str, wish: Wish, *, previous: bool) -> str:
    namespace, name = queues.place(pod)
    args = [f"--container={container}", f"--tail={wish.lines}", *(["--previous"] if previous else [])]
    said = kubectl.text("logs", name, *args, namespace=namespace)
    return said if wish.handlers else own(said)


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
        return answer.out
    container = f"--container={pod['spec']['containers'][0]['name']}"
    return kubectl.text("exec", name, container, "--", "python3", "-c", METRICS, namespace=namespace)

"""One namespace as the tests of reconciliation see it: DelayQueues, what came of them, who wrote what, and events."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delayq_operator.base import names

from tests.cluster.harness.resources import delayqueues, found, make_namespace
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import Operator, condition, install_rights, queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.harness.audit import AuditEvent
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.rest import Object

ACCOUNT: Final = "delayq-operator"
KINDS: Final = {kind.plural: kind for kind in (*names.CHILDREN, *names.OPTIONAL)}
CORE: Final = {
    names.DELAY_SCHEDULE.plural: names.API_VERSION,
    "pods": "v1",
    "secrets": "v1",
    "events": "v1",
    "replicasets": "apps/v1",
}
RECONCILES: Final = "delayq_operator_reconciles_total"


@contextmanager
def installed(cluster: ControlPlane) -> Iterator[Callable[..., Operator]]:
    """Rights and a namespace of its own, and what starts an operator there, as often as needed: its Lease stays.

    One at a time: the ClusterRoleBinding is its own.
    """
    home = f"operator-{uuid4().hex[:8]}"
    make_namespace(cluster, home)
    try:
        yield partial(Operator.fork, install_rights(cluster, home, everywhere=True), home, everywhere=True)
    finally:
        cluster.kubectl("delete", "namespace", home, "--wait=false", check=False)


@contextmanager
def running(operator: Operator) -> Iterator[Operator]:
    """Until the end of the `with` block."""
    try:
        yield operator.wait_ready()
    finally:
        operator.process.stop()


@contextmanager
def serving(cluster: ControlPlane, *args: str) -> Iterator[Operator]:
    """An operator for all namespaces, with a namespace of its own."""
    with installed(cluster) as start, running(start(*args)) as operator:
        yield operator


@dataclass
class World:
    """A namespace that an operator serves."""

    cluster: ControlPlane
    operator: Operator
    namespace: str

    # --- Paths and objects.

    def path(self, plural: str, name: str = "") -> str:
        """Of an object, or of all of a kind."""
        if plural == names.PLURAL:
            found = delayqueues(self.namespace)
        else:
            version = CORE.get(plural) or KINDS[plural].api_version
            prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
            found = f"{prefix}/namespaces/{self.namespace}/{plural}"
        return f"{found}/{name}" if name else found

    def get(self, plural: str, name: str, **query: str) -> Object:
        return self.cluster.rest.get(self.path(plural, name), **query)

    def there(self, plural: str, name: str) -> bool:
        return found(self.cluster, self.path(plural, name))

    def uid(self, plural: str, name: str) -> str:
        """Empty when it is not there."""
        return str(self.get(plural, name)["metadata"]["uid"]) if self.there(plural, name) else ""

    def items(self, plural: str, **query: str) -> list[Object]:
        return self.cluster.rest.items(self.path(plural), **query)

    def make(self, plural: str, body: Object) -> Object:
        return self.cluster.rest.create(self.path(plural), body)

    def patch(self, plural: str, name: str, body: Object) -> Object:
        return self.cluster.rest.patch(self.path(plural, name), body)

    def delete(self, plural: str, name: str) -> None:
        self.cluster.rest.delete(self.path(plural, name))

    def kubectl(self, *args: str, text: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *args, input=text).stdout

    # --- DelayQueues.

    def create(self, name: str = "orders", **spec: Any) -> Object:  # noqa: ANN401  parts of a document
        return self.make(names.PLURAL, queue(name, **spec))

    def edit(self, name: str = "orders", /, **spec: Any) -> Object:  # noqa: ANN401
        return self.patch(names.PLURAL, name, {"spec": spec})

    def annotate(self, name: str = "orders", /, **annotations: str | None) -> None:
        """Underlines in a name stand for dashes; ours begin with delayq.dev/."""
        body = {
            "metadata": {
                "annotations": {
                    f"delayq.dev/{key.replace('_', '-')}": text for key, text in annotations.items()
                }
            }
        }
        self.patch(names.PLURAL, name, body)

    def queue(self, name: str = "orders") -> Object:
        return self.get(names.PLURAL, name)

    def until(
        self, kind: str, status: str = "", reason: str = "", *, name: str = "orders", timeout_s: float = 20
    ) -> dict[str, Any]:
        """The condition, once it is like that and of the spec's generation."""

        def look() -> dict[str, Any]:
            body = self.queue(name)
            is_now = condition(body, kind)
            assert is_now["status"] == (status or is_now["status"]) != "", is_now
            assert is_now["reason"] == (reason or is_now["reason"]), is_now
            assert is_now["observedGeneration"] == body["metadata"]["generation"], is_now
            return is_now

        return eventually(look, timeout_s=timeout_s, what=f"{kind} is {status} {reason}")

    def start(self, name: str = "orders", **spec: Any) -> None:  # noqa: ANN401
        """Create a DelayQueue, and return when all that follows from it is there and nothing moves."""
        self.create(name, **spec)
        self.settle(name)

    def settle(self, name: str = "orders") -> None:
        """Until the operator has done the spec, and Kubernetes' controllers have seen the Deployments."""
        self.until("Progressing", name=name)
        count = 3 if "api" in self.queue(name)["spec"] else 2

        def seen() -> bool:
            loads = self.items("deployments", labelSelector=f"{names.QUEUE_LABEL}={name}")
            return len(loads) == count and all(_observed(load) for load in loads)

        eventually(seen, what="Deployments are observed")
        self.nudge(name)
        eventually(lambda: self._counted(name), what="their pods are counted in status")

    def _counted(self, name: str) -> bool:
        """Whether the operator has seen of the Deployments what we have."""
        status = self.queue(name)["status"]
        reported = {"worker": status["replicas"], "scanner": status["scanner"]["replicas"]}
        return all(
            self.get("deployments", f"{name}-{component}")["status"].get("replicas", 0) == count
            for component, count in reported.items()
        )

    def nudge(self, name: str = "orders") -> None:
        """Return when the DelayQueue was reconciled once more, in any state."""
        before = self.operator.metric(RECONCILES)
        self.annotate(name, nudged=uuid4().hex[:8])
        eventually(lambda: self.operator.metric(RECONCILES) > before, what="another reconciliation")

    # --- What came of it.

    def children(self) -> set[tuple[str, str]]:
        """(plural, name) of everything that carries the operator's labels, but for pods, and Jobs of the reaper."""
        label = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"
        return {
            (plural, item["metadata"]["name"])
            for plural in KINDS
            if found(self.cluster, self.path(plural))
            for item in self.items(plural, labelSelector=label)
            if "CronJob" not in {owner["kind"] for owner in item["metadata"].get("ownerReferences", ())}
        }

    def events(self, reason: str, name: str = "orders") -> list[str]:
        """Messages of the events of a DelayQueue."""
        selector = f"involvedObject.name={name},involvedObject.kind=DelayQueue,reason={reason}"
        return [event["message"] for event in self.items("events", fieldSelector=selector)]

    def event(self, reason: str, *words: str, name: str = "orders") -> str:
        """The event with these words in its message, once it is there."""

        def look() -> str:
            reported = self.events(reason, name)
            fitting = [message for message in reported if all(word in message for word in words)]
            assert fitting, reported
            return fitting[-1]

        return eventually(look, what=f"event {reason} {words}")

    def enqueue(self) -> int:
        """A place in the audit log."""
        return self.cluster.audit_mark()

    def writes(self, since: int) -> list[AuditEvent]:
        """What operators wrote in this namespace, events left out."""
        return [
            event
            for event in self.cluster.audit_events(since)
            if event.user.endswith(f":{ACCOUNT}")
            and event.namespace == self.namespace
            and event.verb not in {"get", "list", "watch"}
            and event.resource != "events"
        ]

    def written(self, since: int) -> list[str]:
        """The same in words: verb, resource/name."""
        return [_words(event) for event in self.writes(since)]

    @contextmanager
    def numbers(self, plural: str, name: str, *path: str) -> Iterator[list[int]]:
        """Every number that a field comes to have meanwhile, in order; there is none while the object is not there."""
        there, end = self.there(plural, name), uuid4().hex[:8]
        listed, done = self.cluster.rest.get(self.path(plural)), threading.Event()
        before = [_at(self.get(plural, name), path)] if there else []
        seen: list[int] = []

        def watch() -> None:
            since = listed["metadata"]["resourceVersion"]
            for _, body in self.cluster.rest.watch(self.path(plural), since=since, timeout_s=300):
                number = _at(body, path)
                if (
                    body["metadata"]["name"] == name
                    and [number] != (seen or before)[-1:]
                    and number is not None
                ):
                    seen.append(number)
                if body["metadata"].get("labels", {}).get("watched") == end:
                    break
            done.set()

        threading.Thread(target=watch, daemon=True).start()
        yield seen
        self.patch(plural, name, {"metadata": {"labels": {"watched": end}}})
        assert done.wait(lenient(30))

    # --- Pods, which nothing runs here.

    def revisions(self, component: str = "worker") -> int:
        """ReplicaSets of the DelayQueue `orders` made so far: one for each pod template."""
        selector = f"{names.QUEUE_LABEL}=orders,{names.COMPONENT_LABEL}={component}"
        return len(self.items("replicasets", labelSelector=selector))

    def pods(self, component: str, name: str = "orders") -> list[Object]:
        selector = f"{names.QUEUE_LABEL}={name},{names.COMPONENT_LABEL}={component}"
        return self.items("pods", labelSelector=selector)

    def pretend_ready(self, component: str, address: str = "127.0.0.1", name: str = "orders") -> None:
        """Report all pods of a component as running, as the kubelet would."""
        for pod in eventually(lambda: self.pods(component, name), what=f"pods of {component}"):
            status = {
                "phase": "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            with suppress(Refused):  # a rollout has replaced the pod meanwhile
                self.cluster.rest.patch(
                    f"{self.path('pods', pod['metadata']['name'])}/status", {"status": status}
                )


def _at(body: Object, path: tuple[str, ...]) -> Any:  # noqa: ANN401  a field, if it is there
    for step in path:
        body = body.get(step, {})
    return None if body == {} else body


def _observed(load: Object) -> bool:
    """Whether its controller has seen the spec, and made pods. Old ones stay here: new ones never get ready."""
    status, wanted = load.get("status", {}), load["spec"]["replicas"]
    seen = status.get("observedGeneration", 0) >= load["metadata"]["generation"]
    made = status.get("replicas", 0) >= wanted and status.get("updatedReplicas", 0) >= min(1, wanted)
    return bool(seen and made)


def _words(event: AuditEvent) -> str:
    sub = f"/{event.subresource}" if event.subresource else ""
    return f"{event.verb} {event.resource}{sub}/{event.name}"


def managers(body: Object, *path: str) -> set[str]:
    """Who owns a field, by managedFields; the path without the `f:` of each step."""
    owners = set()
    for entry in body["metadata"].get("managedFields", ()):
        at: Any = entry.get("fieldsV1", {})
        for step in path:
            at = at.get(step if step.startswith("k:") else f"f:{step}") if isinstance(at, dict) else None
        if at is not None:
            owners.add(entry["manager"])
    return owners

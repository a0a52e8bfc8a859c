"""What became of the number of workers and of each worker pod. Times are Unix seconds by this machine's clock."""

from __future__ import annotations

import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from delayq.contract.metrics import WORKER_FIRST_CLAIM
from delayq_operator.base import names

from tests.exposition import samples
from tests.node.scaled import WORKER
from tests.node.world import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.harness.rest import Object
    from tests.node.world import NodeWorld


@dataclass
class Life:
    """One worker pod."""

    name: str
    created_at: float
    """In whole seconds, as Kubernetes tells."""
    ready_at: float | None = None
    claimed_at: float | None = None
    leaving_at: float | None = None
    gone_at: float | None = None
    costs: list[int] = field(default_factory=list)
    """Deletion costs it was given."""


@dataclass
class Diary:
    """What happened to the workers while it was kept."""

    numbers: list[tuple[float, int]] = field(default_factory=list)
    """When the Deployment's desired number changed."""
    lives: dict[str, Life] = field(default_factory=dict)

    def pod_seconds(self, start: float, end: float) -> float:
        """How long pods were there, all together."""
        spans = (min(life.gone_at or end, end) - max(life.created_at, start) for life in self.lives.values())
        return sum(max(0.0, span) for span in spans)

    def deployment(self, _kind: str, body: Object) -> None:
        number = int(body["spec"]["replicas"])
        if body["metadata"]["name"] == WORKER and [number] != [each for _, each in self.numbers[-1:]]:
            self.numbers.append((time.time(), number))

    def pod(self, kind: str, body: Object) -> None:
        metadata, now = body["metadata"], time.time()
        if metadata["labels"].get(names.COMPONENT_LABEL) != "worker":
            return
        created = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
        life = self.lives.setdefault(metadata["name"], Life(metadata["name"], created))
        cost = metadata.get("annotations", {}).get(names.DELETION_COST)
        if cost is not None and int(cost) not in life.costs[-1:]:
            life.costs.append(int(cost))
        if "deletionTimestamp" in metadata:
            life.leaving_at = life.leaving_at or now
        if kind == "DELETED":
            life.gone_at = now
        elif is_ready(body) and life.ready_at is None:
            life.ready_at = now
        if life.ready_at is not None and life.claimed_at is None and life.leaving_at is None:
            life.claimed_at = first_claim(body)


def first_claim(pod: Object) -> float | None:
    """When it first claimed, as it says itself; None when it does not."""
    ports = [port for each in pod["spec"]["containers"] for port in each.get("ports", ())]
    (port,) = [each["containerPort"] for each in ports if each["name"] == names.METRICS_PORT_NAME]
    url = f"http://{pod['status']['podIP']}:{port}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            said = {name: value for name, _, value in samples(answer.read().decode())}
    except OSError:
        return None
    return said.get(WORKER_FIRST_CLAIM.name)


@contextmanager
def recording(world: NodeWorld) -> Iterator[Diary]:
    """Write down what happens meanwhile."""
    diary = Diary()
    with _watched(world, "deployments", diary.deployment), _watched(world, "pods", diary.pod):
        yield diary


@contextmanager
def _watched(world: NodeWorld, plural: str, note: Callable[[str, Object], None]) -> Iterator[None]:
    rest, path = world.cluster.rest, world.path(plural)
    before, ended = rest.get(path), threading.Event()
    (stop,) = [each for each in before["items"] if each["metadata"]["name"].startswith("redis")]

    def watch() -> None:
        try:
            for kind, body in rest.watch(path, since=before["metadata"]["resourceVersion"]):
                if "watched" in body["metadata"].get("annotations", {}):
                    break
                note(kind, body)
        finally:
            ended.set()

    for each in before["items"]:
        note("ADDED", each)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        enough = {"metadata": {"annotations": {"watched": "enough"}}}
        world.patch(plural, stop["metadata"]["name"], enough)
        if not ended.wait(30):
            raise TimeoutError(f"{plural} are still watched")
        world.patch(plural, stop["metadata"]["name"], {"metadata": {"annotations": {"watched": None}}})

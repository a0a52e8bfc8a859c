"""A DelayQueue on the node whose workers the operator numbers, and a diary of what became of the number and each pod.

Times are Unix seconds by this machine's clock, which is the node's and Redis' too.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from delayq import NewTask
from delayq.contract.metrics import WORKER_FIRST_CLAIM
from delayq.scaling import replayed
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.exposition import samples
from tests.node.ledger import of
from tests.node.world import QUEUE, is_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from delayq.scaling import Decision

    from tests.cluster.harness.rest import Object
    from tests.node.world import NodeWorld, Payload

WORKER: Final = names.worker(QUEUE)
SOON: Final = {
    "minReplicas": 0,
    "maxReplicas": 8,
    "cooldownSeconds": 10,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10}},
}
"""An autoscaling that comes back to zero while a test waits, and takes nobody away who has just been asked for."""


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
    """When the Deployment was to have how many."""
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


@dataclass
class Scaled:
    """The DelayQueue `orders` of a world."""

    world: NodeWorld

    @classmethod
    def begin(cls, world: NodeWorld, *, concurrency: int, **spec: Any) -> Scaled:  # noqa: ANN401  parts of a document
        """Make it, and wait until it is Ready and its number follows the work.

        How long a start takes is not known yet, for sure: a worker that was long on its way before anybody was to be
        asked teaches nothing. One that is started for a task does.
        """
        worker = {"concurrency": concurrency, "replicas": None, **spec.pop("worker", {})}
        autoscaling = {**SOON, **spec.pop("autoscaling", {})}
        world.begin(worker=worker, autoscaling=autoscaling, **spec)
        scaled = cls(world)
        world.until("ScalingActive", "True", "ValidMetricsFound")
        return scaled

    def learn_lead(self) -> int:
        """Have a worker started for a task, if none has taught yet how long that takes; and let it go again."""
        if "leadSeconds" not in self.told:
            self.world.schedule({"teacher": None})
            self.until_told("leadSeconds")
            self.until_none()
        return int(self.told["leadSeconds"])

    # --- The number of workers.

    @property
    def told(self) -> Object:
        """status.scaling."""
        found: Object = self.world.queue().get("status", {}).get("scaling", {})
        return found

    def until_told(self, name: str) -> Any:  # noqa: ANN401  a field of a status
        return eventually(lambda: self.told.get(name), timeout_s=60, what=f"status.scaling.{name}")

    @property
    def number(self) -> int:
        """For how many workers the Deployment asks."""
        return int(self.world.get("deployments", WORKER)["spec"]["replicas"])

    def until_number(self, fits: Callable[[int], bool], *, timeout_s: float = 60, what: str = "") -> int:
        def there() -> list[int]:
            number = self.number
            assert fits(number), (number, self.told)
            return [number]

        return eventually(there, timeout_s=timeout_s, what=what or "the number of workers")[0]

    def until_none(self, *, timeout_s: float = 90) -> None:
        """Until no worker is asked for, and none is there."""
        self.until_number(lambda number: number == 0, timeout_s=timeout_s, what="no workers")
        eventually(lambda: not self.world.pods("worker"), timeout_s=timeout_s, what="the last worker is gone")

    def events(self, *reasons: str) -> list[Object]:
        """Those of scaling, oldest first."""
        found = [
            each
            for each in self.world.items("events", fieldSelector="involvedObject.kind=DelayQueue")
            if each["reason"] in (reasons or ("ScaledUp", "ScaledDown"))
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def decisions(self, reason: str) -> list[Decision]:
        """What led to each event of this kind."""
        return [replayed(record(each)) for each in self.events(reason)]

    @contextmanager
    def diary(self) -> Iterator[Diary]:
        """Write down what happens meanwhile."""
        diary = Diary()
        with self._watched("deployments", diary.deployment), self._watched("pods", diary.pod):
            yield diary

    @contextmanager
    def _watched(self, plural: str, note: Callable[[str, Object], None]) -> Iterator[None]:
        rest, path = self.world.cluster.rest, self.world.path(plural)
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
            self.world.patch(plural, stop["metadata"]["name"], enough)
            assert ended.wait(30), f"{plural} are still watched"
            self.world.patch(
                plural, stop["metadata"]["name"], {"metadata": {"annotations": {"watched": None}}}
            )

    # --- Tasks.

    @property
    def now_ms(self) -> int:
        """Redis' clock."""
        seconds, micros = self.world.connection.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def schedule_at(self, due_ms: int, tasks: dict[str, Payload]) -> None:
        """Schedule tasks that all fall due at one instant."""
        new = [NewTask(payload, due_ms=due_ms, task_id=task_id) for task_id, payload in tasks.items()]
        with self.world.client as client:
            client.schedule_many(new)
        self.world.payloads |= tasks
        self.world.due_ms |= dict.fromkeys(tasks, due_ms)

    def late_seconds(self, ids: Iterable[str]) -> list[float]:
        """How late each first run of these tasks began, sorted; by Redis' clock."""
        starts = of("start", self.world.ledger)
        return sorted((starts[each][0].at_ms - self.world.due_ms[each]) / 1000 for each in ids)


def record(event: Object) -> str:
    """The decision that led to an event."""
    return str(event["metadata"]["annotations"][names.DECISION])

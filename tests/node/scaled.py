"""A DelayQueue on the node whose number of workers follows the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq import NewTask
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.node.world import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.harness.rest import Object
    from tests.node.world import NodeWorld, Payload

WORKER: Final = names.worker(QUEUE)
SOON: Final = {
    "minReplicas": 0,
    "maxReplicas": 8,
    "cooldownSeconds": 10,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10}},
}
"""An autoscaling that returns to zero while a test waits, and stops no worker that was just requested."""


@dataclass
class Scaled:
    """The DelayQueue `orders` of a world."""

    world: NodeWorld

    @classmethod
    def begin(cls, world: NodeWorld, *, concurrency: int, **spec: Any) -> Scaled:  # noqa: ANN401  parts of a document
        """Make it, and wait until it is Ready and its number follows the work.

        The start of a worker is not measured yet: the first one was created before a task required one, and its start
        does not count. One that is started for a task does.
        """
        worker = {"concurrency": concurrency, "replicas": None, **spec.pop("worker", {})}
        autoscaling = {**SOON, **spec.pop("autoscaling", {})}
        world.begin(worker=worker, autoscaling=autoscaling, **spec)
        scaled = cls(world)
        world.until("ScalingActive", "True", "ValidMetricFound")
        return scaled

    def learn_lead(self) -> int:
        """Have a worker started for a task, if none has taught yet how long that takes; and let it go again.

        One that restarts or waits for Redis, as beside other work, teaches nothing: then another one has to.
        """
        for nth in range(3):
            if "leadTimeSeconds" not in self.reported:
                self.world.schedule({f"teacher-{nth}": None})
                self.world.wait_entries("end", [f"teacher-{nth}"])
                self.until_none()
        return int(self.until_reported("leadTimeSeconds"))

    # --- The number of workers.

    @property
    def reported(self) -> Object:
        """status.scaling."""
        found: Object = self.world.queue().get("status", {}).get("scaling", {})
        return found

    def until_reported(self, name: str) -> Any:  # noqa: ANN401  a field of a status
        return eventually(lambda: self.reported.get(name), timeout_s=60, what=f"status.scaling.{name}")

    @property
    def number(self) -> int:
        """For how many workers the Deployment asks."""
        return int(self.world.get("deployments", WORKER)["spec"]["replicas"])

    def until_number(self, fits: Callable[[int], bool], *, timeout_s: float = 60, what: str = "") -> int:
        def there() -> list[int]:
            number = self.number
            assert fits(number), (number, self.reported)
            return [number]

        return eventually(there, timeout_s=timeout_s, what=what or "the number of workers")[0]

    def until_none(self, *, timeout_s: float = 90) -> None:
        """Until no worker is asked for, and none is there."""
        self.until_number(lambda number: number == 0, timeout_s=timeout_s, what="no workers")
        eventually(lambda: not self.world.pods("worker"), timeout_s=timeout_s, what="the last worker is gone")

    # --- Tasks.

    def schedule_at(self, due_ms: int, tasks: dict[str, Payload]) -> None:
        """Schedule tasks that all fall due at one instant."""
        new = [NewTask(payload, due_ms=due_ms, task_id=task_id) for task_id, payload in tasks.items()]
        with self.world.client as client:
            client.schedule_many(new)
        self.world.payloads |= tasks
        self.world.due_ms |= dict.fromkeys(tasks, due_ms)

    def reschedule(self, due_ms: int) -> None:
        """Have all tasks that wait fall due at another instant."""
        waiting = self.world.snapshot.delayed
        with self.world.client as client:
            for task_id in waiting:
                client.reschedule(task_id, due_ms=due_ms)
        self.world.due_ms |= dict.fromkeys(waiting, due_ms)

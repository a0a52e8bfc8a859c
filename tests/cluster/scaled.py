"""A DelayQueue that the operator scales by its work: real scanners and workers, run as processes of this host."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq import SyncClient
from delayq.contract import parse

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import QUEUES, condition, queue_with_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object
    from tests.servers import RedisServer

HANDLER: Final = """
import asyncio, os, time
from redis.asyncio import Redis
ledger = Redis.from_url(os.environ["LEDGER"])
async def handle(task):
    await ledger.hset("began", task.id, time.time())
    await ledger.hincrby("attempts", task.id, 1)
    await ledger.hset("at", task.id, os.environ["POD"])
    if task.payload.get("gate"):
        while not await ledger.exists("open"):
            await asyncio.sleep(0.1)
    await asyncio.sleep(task.payload.get("seconds", 0))
    await ledger.rpush("ledger", task.id)
    await ledger.hdel("at", task.id)
"""


@dataclass
class Scaled:
    """One DelayQueue on a real Redis."""

    cluster: Cluster
    namespace: str
    redis: RedisServer
    document: Object

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        namespace: str,
        redis: RedisServer,
        *,
        concurrency: int = 2,
        **autoscaling: Any,  # noqa: ANN401
    ) -> Scaled:
        """Create it, scaled like this."""
        limits = {"cooldownSeconds": 10, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
        document = queue_with_code(
            *(cluster, namespace, redis, HANDLER),
            scanner={"replicas": 1},
            worker={"concurrency": concurrency},
            autoscaling=limits | autoscaling,
        )
        cluster.rest.create(QUEUES.format(namespace=namespace), document)
        return cls(cluster, namespace, redis, document)

    @property
    def path(self) -> str:
        return f"{QUEUES.format(namespace=self.namespace)}/orders"

    @property
    def body(self) -> Object:
        return self.cluster.rest.get(self.path)

    @property
    def told(self) -> Object:
        """status.scaling."""
        found: Object = self.body.get("status", {}).get("scaling", {})
        return found

    @property
    def deployment(self) -> Object:
        return self.cluster.rest.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/orders-worker")

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"]["replicas"])

    def workers(self, *, ready: bool = False) -> list[Object]:
        """The pods of workers, but for those that leave."""
        found = self.cluster.rest.items(
            f"/api/v1/namespaces/{self.namespace}/pods", labelSelector="app.kubernetes.io/component=worker"
        )
        return [
            pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and (not ready or {"Ready": "True"}.items() <= _conditions(pod).items())
        ]

    def at_work(self) -> dict[str, str]:
        """Task → the pod that runs it."""
        with self.redis.client() as ledger:
            return dict(ledger.hgetall("at"))

    def attempts(self) -> dict[str, int]:
        """Task → how often it was begun."""
        with self.redis.client() as ledger:
            return {task: int(number) for task, number in ledger.hgetall("attempts").items()}

    def edit(self, **spec: Any) -> None:  # noqa: ANN401
        self.cluster.rest.patch(self.path, {"spec": spec})

    def until(self, kind: str, status: str, reason: str = "", *, timeout_s: float = 40) -> Object:
        def there() -> Object:
            found = condition(self.body, kind)
            assert (found["status"], reason or found["reason"]) == (status, found["reason"]), found
            return found

        return eventually(there, timeout_s=timeout_s, what=f"{kind} is {status} {reason}")

    def until_told(self, field: str) -> Any:  # noqa: ANN401
        """A field of status.scaling, once it is there."""
        return eventually(lambda: self.told.get(field), what=f"status.scaling.{field}")

    def until_lead_told(self) -> int:
        """The lead time of a single start. One that takes long while nobody can decide teaches nothing: try again."""
        for _ in range(3):
            with suppress(AssertionError):
                return int(self.until_told("leadSeconds"))
            pod = self.workers()[0]["metadata"]["name"]
            self.cluster.rest.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod}")
        return int(self.until_told("leadSeconds"))

    def until_replicas(self, number: int, *, timeout_s: float = 40) -> None:
        def there() -> bool:
            assert self.replicas == number, (self.replicas, self.told)
            return True

        eventually(there, timeout_s=timeout_s, what=f"{number} workers")

    def events(self, *reasons: str) -> list[Object]:
        """Those of scaling, oldest first."""
        wanted = reasons or ("ScaledUp", "ScaledDown")
        selector = "involvedObject.kind=DelayQueue"
        events = self.cluster.rest.items(
            f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=selector
        )
        found = [event for event in events if event["reason"] in wanted]
        return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))

    @contextmanager
    def client(self) -> Iterator[SyncClient]:
        with SyncClient(self.redis.url, queue=parse(self.document).queue) as client:
            yield client

    def schedule(self, tasks: int, delay_s: float, **payload: object) -> set[str]:
        with self.client() as client:
            return {client.schedule(payload, delay_ms=int(delay_s * 1000)).id for _ in range(tasks)}

    def done(self) -> set[str]:
        with self.redis.client() as ledger:
            return set(ledger.lrange("ledger", 0, -1))

    def until_done(self, ids: set[str], *, timeout_s: float = 60) -> None:
        eventually(lambda: ids <= self.done(), timeout_s=timeout_s, what="all tasks are handled")

    def began(self, task_id: str) -> float:
        with self.redis.client() as ledger:
            return float(ledger.hget("began", task_id))

    def open(self) -> None:
        """Let tasks with a gate through."""
        with self.redis.client() as ledger:
            ledger.set("open", 1)

    @contextmanager
    def numbers(self) -> Iterator[list[int]]:
        """Every number of workers that the Deployment comes to ask for meanwhile, in order."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        before = self.replicas
        since, seen, ended = (
            self.cluster.rest.get(path)["metadata"]["resourceVersion"],
            list[int](),
            threading.Event(),
        )

        def watch() -> None:
            for _, body in self.cluster.rest.watch(path, since=since, timeout_s=300):
                number = body["spec"]["replicas"]
                if body["metadata"]["name"] == "orders-worker" and number != (seen[-1] if seen else before):
                    seen.append(number)
                if "watched" in body["metadata"].get("labels", {}):
                    break
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
        yield seen
        self.cluster.rest.patch(f"{path}/orders-worker", {"metadata": {"labels": {"watched": "enough"}}})
        assert ended.wait(30)


def _conditions(pod: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}

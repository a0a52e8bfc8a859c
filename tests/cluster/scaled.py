"""A DelayQueue that the operator scales by its work: real scanners and workers, run as processes of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delayq import SyncClient
from delayq.contract import parse
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import queue_with_code

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.cluster.world import World
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
    if task.kind == "slow":
        await asyncio.sleep(1)
    await ledger.rpush("ledger", task.id)
    await ledger.hdel("at", task.id)
"""


class Scaled:
    """One DelayQueue on a real Redis, in the namespace of a world."""

    def __init__(self, world: World, redis: RedisServer, *, concurrency: int = 2, **autoscaling: Any) -> None:  # noqa: ANN401
        """Create it, scaled like this."""
        self.world, self.redis = world, redis
        here = {"callable": "shop:handle"}
        limits = {"cooldownSeconds": 10, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
        self.document = queue_with_code(
            *(world.cluster, world.namespace, redis, HANDLER),
            scanner={"replicas": 1},
            worker={"concurrency": concurrency},
            handler={"python": here, "kinds": {"quick": {"python": here}, "slow": {"python": here}}},
            autoscaling=limits | autoscaling,
        )
        world.make(names.PLURAL, self.document)

    def told(self, field: str) -> Any:  # noqa: ANN401
        """A field of status.scaling, once it is there."""

        def look() -> object:
            return self.world.queue().get("status", {}).get("scaling", {}).get(field)

        return eventually(look, what=f"status.scaling.{field}")

    def workers(self, *, ready: bool = False) -> list[Object]:
        """The pods of workers, but for those that leave."""
        return [
            pod
            for pod in self.world.pods("worker")
            if "deletionTimestamp" not in pod["metadata"]
            and (not ready or ("Ready", "True") in _conditions(pod).items())
        ]

    def hash(self, name: str) -> dict[str, str]:
        """What handlers wrote by task: `at`, the pod that runs it; `attempts`, how often it was begun; `began`."""
        with self.redis.client() as ledger:
            return dict(ledger.hgetall(name))

    def until_replicas(self, number: int) -> None:
        def there() -> bool:
            body = self.world.queue()
            asked = self.world.get("deployments", "orders-worker")["spec"]["replicas"]
            assert asked == number, (asked, body.get("status", {}).get("scaling"))
            return True

        eventually(there, timeout_s=60, what=f"{number} workers")

    def events(self, *reasons: str) -> list[Object]:
        """Those of scaling, oldest first."""
        events = self.world.items("events", fieldSelector="involvedObject.kind=DelayQueue")
        found = [event for event in events if event["reason"] in (reasons or ("ScaledUp", "ScaledDown"))]
        return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def schedule(self, tasks: int, delay_s: float, kind: str | None = None, **payload: object) -> set[str]:
        delay_ms = int(delay_s * 1000)
        with SyncClient(self.redis.url, queue=parse(self.document).queue) as client:
            return {client.schedule(payload, delay_ms=delay_ms, kind=kind).id for _ in range(tasks)}

    def until_done(self, ids: set[str]) -> None:
        def done() -> bool:
            with self.redis.client() as ledger:
                return ids <= set(ledger.lrange("ledger", 0, -1))

        eventually(done, timeout_s=60, what="all tasks are handled")

    def open(self) -> None:
        """Let tasks with a gate through."""
        with self.redis.client() as ledger:
            ledger.set("open", 1)


def _conditions(pod: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}

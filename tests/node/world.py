"""A namespace on the node with a Redis and a DelayQueue whose pods write a ledger: what tests of the product ask for.

`start()` makes the DelayQueue `orders` and waits for Ready; `schedule()` takes ids with payloads of recorder.py;
`account()` is the end of a test: each task scheduled so far is done or dead, as its payload has it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from delayq import NewTask, SyncClient
from delayq.protocol.keys import Keys

from tests.cluster.harness.resources import delete_namespace, make_namespace
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition
from tests.cluster.world import World
from tests.node.ledger import Entry, check_task, entries, of
from tests.node.recorder import OPEN
from tests.process.fleet import WHOLE, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from redis import Redis

    from tests.cluster.harness.rest import Object
    from tests.node.harness.node import Node
    from tests.node.harness.redis import NodeRedis
    from tests.node.release import Release

QUEUE: Final = "orders"
CODE: Final = (Path(__file__).parent / "recorder.py").read_text()
READY_SECONDS: Final = 60
DOOMED: Final = {"do": "devour"}

Payload = dict[str, Any] | None


@dataclass
class NodeWorld(World):
    """A namespace, its Redis, and what was scheduled there. All that World has works here, and on real pods."""

    operator: Release  # type: ignore[assignment]  # in a pod, and no process of ours
    node: Node
    redis: NodeRedis
    connection: Redis
    payloads: dict[str, Payload] = field(default_factory=dict)
    due_ms: dict[str, int] = field(default_factory=dict)
    keys: Keys = field(default_factory=lambda: Keys("delayq", QUEUE, 0))

    @classmethod
    @contextmanager
    def made(cls, node: Node, operator: Release) -> Iterator[Self]:
        """A namespace of a new name, until the end of the `with` block."""
        namespace = f"test-{uuid4().hex[:8]}"
        make_namespace(node.cluster, namespace)
        redis = node.redis(namespace)
        with redis.client() as connection:
            world = cls(node.cluster, operator, namespace, node, redis, connection)
            yield world
            world.let_go()
        delete_namespace(node.cluster, namespace)

    # --- The DelayQueue.

    def begin(self, *, wait: str = "Ready", **spec: Any) -> None:  # noqa: ANN401  parts of a document
        """Make the DelayQueue, and wait until a condition is True; parts of the spec go over the usual ones."""
        if not self.there_is_code:
            self.make_code()
        usual = self.usual
        parts = {
            name: {**usual.get(name, {}), **part} for name, part in spec.items() if isinstance(part, dict)
        }
        worker = self.worker(**parts.pop("worker", {}))
        self.create(QUEUE, **{**usual, **spec, **parts, "worker": worker})
        if wait:
            self.until(wait, "True", timeout_s=READY_SECONDS)
            self.until("Progressing", "True", "NewReplicaSetAvailable", timeout_s=READY_SECONDS)

    @property
    def there_is_code(self) -> bool:
        return self.there("configmaps", "code")

    def make_code(self, code: str = CODE) -> None:
        self.make("configmaps", {"metadata": {"name": "code"}, "data": {"recorder.py": code}})

    @property
    def usual(self) -> dict[str, Any]:
        return {
            "redis": self.redis.spec,
            "handler": {"python": {"callable": "recorder:handle"}},
            "delivery": {
                "leaseDurationSeconds": 5,
                "maxAttempts": 3,
                "maxCrashes": 100,
                "backoff": {"delaysSeconds": [1]},
            },
        }

    def worker(self, *, container: Object | None = None, **fields: Any) -> Object:  # noqa: ANN401  parts of it
        """A spec.worker whose pods find the recorder in /app; `container` goes into the template."""
        made = {
            "name": "worker",
            "env": [{"name": "LEDGER", "value": self.redis.url}],
            "volumeMounts": [{"name": "code", "mountPath": "/app", "readOnly": True}],
            **(container or {}),
        }
        volume = {"name": "code", "configMap": {"name": "code"}}
        return {"replicas": 2, "template": {"spec": {"containers": [made], "volumes": [volume]}}, **fields}

    def reported(self, *words: str) -> str:
        """What Degraded says of pods that fail, once all of this is in it."""

        def look() -> str:
            found = condition(self.queue(), "Degraded")
            assert found["reason"] == "PodsFailing", found
            assert [word for word in words if word not in found["message"]] == [], found
            return str(found["message"])

        return eventually(look, timeout_s=READY_SECONDS, what=f"Degraded says {words}")

    def recovered(self, workers: int) -> None:
        """Return when these workers run and nothing needs attention any more."""
        self.wait_running(workers)
        self.until("Degraded", "False", timeout_s=READY_SECONDS)
        self.until("Ready", "True", timeout_s=READY_SECONDS)

    # --- Pods.

    def running(self, component: str = "worker") -> list[Object]:
        """Pods that are ready and not about to go, the oldest first."""
        found = [
            each
            for each in self.pods(component)
            if is_ready(each) and "deletionTimestamp" not in each["metadata"]
        ]
        return sorted(
            found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"])
        )

    def wait_running(self, count: int, component: str = "worker") -> list[Object]:
        """These pods and no others, also none that is about to go."""

        def there() -> list[Object]:
            pods = self.pods(component)
            ready = self.running(component)
            assert len(pods) == len(ready) == count, [
                (each["metadata"]["name"], is_ready(each)) for each in pods
            ]
            return ready

        return eventually(there, timeout_s=READY_SECONDS, what=f"{count} pods of {component} run")

    def pod(self, name: str) -> Object:
        """It, as it is now."""
        return self.get("pods", name)

    def restarts(self, name: str) -> int:
        """How often its container was started anew."""
        return sum(each["restartCount"] for each in self.pod(name)["status"]["containerStatuses"])

    def pid(self, pod: Object) -> int:
        """This machine's number of the delayq process of a pod."""
        (pid,) = self.node.pids(pod)
        return pid

    # --- Tasks.

    @property
    def client(self) -> SyncClient:
        return SyncClient(self.redis.url, queue=QUEUE)

    def schedule(self, tasks: Mapping[str, Payload], delay_ms: Callable[[], int] = lambda: 0) -> None:
        """Schedule tasks by id, each after its own delay."""
        new = [NewTask(payload, delay_ms=delay_ms(), task_id=task_id) for task_id, payload in tasks.items()]
        with self.client as client:
            scheduled = client.schedule_many(new)
        self.payloads |= tasks
        self.due_ms |= {each.id: each.due_ms for each in scheduled}

    @property
    def now_ms(self) -> int:
        """Redis' clock."""
        seconds, micros = self.connection.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def let_go(self) -> None:
        """End all handlers that hold."""
        self.connection.set(OPEN, "1")

    @property
    def ledger(self) -> list[Entry]:
        return entries(self.connection)

    def wait_entries(
        self, event: str, ids: Iterable[str], *, nth: int = 1, timeout_s: float = 60
    ) -> list[Entry]:
        """The nth time that something happened to each of these tasks."""
        wanted = list(ids)

        def there() -> list[Entry]:
            found = of(event, self.ledger)
            missing = [each for each in wanted if len(found[each]) < nth]
            assert not missing, missing[:5]
            return [found[each][nth - 1] for each in wanted]

        return eventually(there, timeout_s=timeout_s, what=f"{event} of {wanted[:5]}")

    @property
    def stats(self) -> dict[str, int]:
        found: Any = self.connection.hgetall(self.keys.stats)
        return {name: int(count) for name, count in found.items()}

    @property
    def snapshot(self) -> Snapshot:
        """What Redis holds, at one instant."""
        keys = self.keys
        zsets = (keys.delayed, keys.retry, keys.suspect, keys.processing, keys.dlq)
        found: Any = self.connection.eval(WHOLE, 7, *zsets, keys.tasks, keys.attempts)
        delayed, retry, suspect, processing, dlq, tasks, attempts = found
        held = [member.rpartition(":")[0] for member in processing]
        return Snapshot(delayed, retry, suspect, held, dlq, set(tasks), set(attempts))

    def drained(self) -> bool:
        """Whether nothing waits and nothing runs."""
        keys = (self.keys.delayed, self.keys.retry, self.keys.suspect, self.keys.processing)
        assert {key: left for key in keys if (left := self.connection.zcard(key))} == {}
        return True

    def account(self, *, crashes: Mapping[str, int] | None = None, timeout_s: float = 90) -> dict[str, int]:
        """Every task scheduled so far is done or dead, once, as its payload has it, and charged as it should be.

        `crashes`: leases that ran out, by task; none is for any other. Returns what Redis counted.
        """
        eventually(self.drained, timeout_s=timeout_s, every_s=0.2, what="all tasks are done or dead")
        snapshot, stats, written = self.snapshot, self.stats, self.ledger
        snapshot.check()
        doomed = {task for task, payload in self.payloads.items() if payload == DOOMED}
        assert set(snapshot.dlq) == snapshot.tasks == doomed
        counted = {name: stats.get(name, 0) for name in ("scheduled", "acked", "buried")}
        total = len(self.payloads)
        assert counted == {"scheduled": total, "acked": total - len(doomed), "buried": len(doomed)}
        starts, ends = of("start", written), of("end", written)
        assert set(starts) == set(self.payloads)
        assert set(ends) == set(self.payloads) - doomed
        crashed = crashes or {}
        fatal = len([task for task in crashed if task in doomed])
        again = {task: len(runs) for task, runs in starts.items() if len(runs) > 1}
        assert stats.get("reclaimed", 0) == sum(crashed.values()) - fatal, (again, stats)
        for task in self.payloads:  # the last crash of a doomed one is followed by no run
            check_task(starts[task], charged=crashed.get(task, 0) - (task in doomed), task=task)
            assert starts[task][0].at_ms >= self.due_ms[task]
        return stats


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

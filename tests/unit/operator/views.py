"""A DelayQueue as the API server would return it, and views of it: healthy unless a test says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.scaling import Policy, Sample, begun, decide
from delayq_operator.cache.resource import Resource
from delayq_operator.cache.workload import Workload
from delayq_operator.scaling.scaling import Scale, scale
from delayq_operator.scrape.backlog import Backlog
from delayq_operator.scrape.shards import ShardMap, Shards
from delayq_operator.status.view import View

from tests.unit.operator.queues import UID, document, queue

if TYPE_CHECKING:
    from delayq.scaling import Decision

NOW = 1_800_000_000.0
RUNNING = Workload(exists=True, wanted=1, pods=1, updated=1, ready=1, current=True)
ONE_SHARD = Shards(shard_map=ShardMap(1, 1, 1, 1))
HEALTHY = Backlog(read_at=NOW, whole=True, redis_up=True, shards=ONE_SHARD)


def body(*, annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    found = document()
    found["metadata"] |= {"uid": UID, "generation": 3, "resourceVersion": "100"} | metadata
    if annotations:
        found["metadata"]["annotations"] = annotations
    return found


def resource(status: dict[str, Any] | None = None, **metadata: Any) -> Resource:  # noqa: ANN401 -- JSON
    return Resource(body(**metadata) | ({"status": status} if status else {}))


def view(**seen: Any) -> View:  # noqa: ANN401 -- the fields of View
    healthy: dict[str, Any] = {
        "resource": resource(),
        "queue": queue(),
        "scanner": RUNNING,
        "worker": RUNNING,
        "scale": Scale(replicas=1, reason="AutoscalingDisabled", message="1 worker: the default"),
        "backlog": HEALTHY,
    }
    return View(**{**healthy, **seen})


def decided(sample: Sample | None = None, *, replicas: int = 1, **autoscaling: Any) -> Decision:  # noqa: ANN401
    """What the operator would decide on a queue that is scaled like this."""
    policy = Policy.of(queue(autoscaling={"maxReplicas": 10} | autoscaling).spec)
    return decide(sample, policy, begun(replicas, NOW - 1000), NOW)


def scaled(decision: Decision, **autoscaling: Any) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a view that show a decision."""
    made = queue(autoscaling={"maxReplicas": 10} | autoscaling)
    return {"queue": made, "scale": scale(made, decision.before, decision)}

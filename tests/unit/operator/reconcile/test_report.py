"""Which changes of a status people are told of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Problem
from delayq.scaling import Sample
from delayq_operator.base import metrics
from delayq_operator.base.errors import NotFound
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.workload import Workload
from delayq_operator.reconcile import report
from delayq_operator.reconcile.report import Reporter, turned
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Observed
from delayq_operator.scrape.backlog_cache import NUMBERS_SECONDS
from delayq_operator.scrape.shards import Down, ShardMap, Shards
from delayq_operator.status.status import status
from delayq_operator.status.view import GuardCounts

from tests.unit.operator.fakes import Clock
from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq_operator.status.view import View

DOWN = replace(HEALTHY, redis_up=False, whole=False)
STARTING = Workload(exists=True, wanted=1, pods=1, updated=1, current=True)
DEMANDING = decided(Sample(overdue=5_000), replicas=1)


def sharded(shard_map: ShardMap, of: DelayQueue | None = None, **missing: Any) -> View:  # noqa: ANN401 -- of Shards
    """A queue with such a shard map; with `missing`, some shards have been missing for a minute."""
    shards = Shards(shard_map=shard_map, **missing)
    reading = replace(HEALTHY, whole=not missing, whole_at=NOW - 60, shards=shards)
    return view(queue=of or queue(), backlog=reading)


FOUR, GUARDED = queue(shards=4), queue(guard={"redisLock": {}})
FINE, MOVING, FOUR_SHARDS = view(), ShardMap(3, 4, 1, 4), ShardMap(4, 4, 4, 4)
STARTS = view(scanner=STARTING, worker=STARTING, backlog=None)
CUT_OFF = view(backlog=DOWN)
PARTLY = sharded(FOUR_SHARDS, FOUR, down=(Down(1, "timeout", "redis-1:6379"),))
GUARDS = view(queue=GUARDED, guard_counts=GuardCounts(able=2))
HALF_GUARDED = replace(GUARDS, guard_counts=GuardCounts(able=1, unable=1))
UNGUARDED = replace(GUARDS, guard_counts=GuardCounts(unable=2))
LATE = view(backlog=replace(HEALTHY, due=5, oldest_due_at=HEALTHY.read_at - 60))
PAUSED, MISSPELT = (
    view(resource=resource(annotations={"delayq.dev/paused": word})) for word in ("true", "yes")
)
BROKEN = view(problems=(Problem("spec.redis", "required"),), scale=None)
RISKY, RISKIER = (view(backlog=replace(HEALTHY, risks=(risk,))) for risk in ("evicts", "append_only_off"))
COMING = view(observed=Observed(rush=Rush(at=NOW + 600, needed=63, late_seconds=660)))
IDLE = scaled(decided(Sample(), replicas=0))
NONE = view(worker=Workload(exists=True, current=True), **IDLE)
WAKING = view(worker=STARTING, **IDLE, observed=Observed(waking=True))

STORIES: dict[str, tuple[list[View], list[str]]] = {
    "a new queue is ready once": ([STARTS, STARTS, FINE, FINE], ["", "", "Ready", ""]),
    "Redis goes and comes back": (
        [FINE, CUT_OFF, CUT_OFF, FINE],
        ["Ready", "NotReady BackendUnavailable", "", "Ready"],
    ),
    "one server of several does": (
        [sharded(FOUR_SHARDS, FOUR), PARTLY, PARTLY, sharded(FOUR_SHARDS, FOUR)],
        ["Ready", "NotReady BackendUnavailable", "", "Ready"],
    ),
    # The condition says it; an event would come with each new queue whose Redis starts a little later.
    "a Redis or a guard that was never reached is no news": ([CUT_OFF, UNGUARDED], ["", ""]),
    "shards change, halt, and settle": (
        [
            FINE,
            view(queue=FOUR),
            sharded(ShardMap(2, 1, 1, 4), FOUR),
            sharded(MOVING, FOUR),
            sharded(MOVING, FOUR, leaderless=(2,)),
            sharded(MOVING, FOUR),
            sharded(FOUR_SHARDS, FOUR),
            sharded(FOUR_SHARDS, FOUR),
        ],
        ["Ready", "ReshardingStarted", "", "", "ReshardingStalled", "", "ReshardingComplete", ""],
    ),
    "back to one shard, where the condition goes": (
        [sharded(FOUR_SHARDS, FOUR), sharded(ShardMap(5, 1, 4, 1)), sharded(ShardMap(6, 1, 1, 1))],
        ["Ready", "ReshardingStarted", "ReshardingComplete"],
    ),
    "a new queue has not changed its shards": ([view(backlog=None), FINE], ["Ready", ""]),
    "a guard goes and comes back": (
        [GUARDS, HALF_GUARDED, UNGUARDED, UNGUARDED, HALF_GUARDED, GUARDS],
        ["Ready", "", "NotReady GuardUnavailable", "", "Ready GuardAvailable", ""],
    ),
    "lateness is told once": ([FINE, LATE, LATE, FINE], ["Ready", "ObjectiveMissed", "", ""]),
    "pausing and resuming": ([FINE, PAUSED, FINE], ["Ready", "Paused", "Resumed"]),
    "what does not pause": ([FINE, MISSPELT, MISSPELT, FINE], ["Ready", "InvalidAnnotation", "", ""]),
    "a spec is refused and corrected": (
        [FINE, BROKEN, BROKEN, FINE],
        ["Ready", "NotReady InvalidSpec", "", "Ready"],
    ),
    "a Secret is missing from the beginning": ([view(missing=("Secret shop-db",))], ["ReferenceNotFound"]),
    "one reason after another": (
        [
            view(taken=("ConfigMap orders-config",)),
            view(failures=("CronJob orders-reaper: no.",)),
            view(foreign=("container proxy",)),
            FINE,
        ],
        ["Ready NameConflict", "ApplyFailed", "UnmanagedFields", ""],
    ),
    "risks and a rollout that hangs": (
        [FINE, RISKY, RISKIER, view(worker=replace(RUNNING, updated=0, stuck="timed out"))],
        ["Ready", "DurabilityAtRisk", "", "ProgressDeadlineExceeded"],
    ),
    "a shortfall comes into sight": (
        [FINE, COMING, COMING, FINE],
        ["Ready", "CapacityShortfallExpected", "", ""],
    ),
    # Each rush would be told as trouble, and as its end.
    "workers on their way from none": ([view(**IDLE), NONE, WAKING, view(**IDLE)], ["Ready", "", "", ""]),
}


@pytest.mark.parametrize("story", STORIES)
def test_events_tell_what_changed(story: str) -> None:
    previous: dict[str, Any] = {}
    for seen, reasons in zip(*STORIES[story], strict=True):
        made = status(seen, previous, NOW)
        assert [reason for reason, _ in turned(previous, made)] == reasons.split()
        previous = made


# --- What is written.


class World:
    """A reporter, with an API server that takes status, and what it is told."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.posted: list[str] = []
        self.later: list[float] = []
        self.gone = False
        self.queues = Queues(lambda _key: None)
        self.queues.seen(resource().body)
        self.reporter = Reporter(self, self.queues, self, self)  # type: ignore[arg-type]

    async def apply(
        self, _kind: object, body: dict[str, Any], *, manager: str, subresource: str
    ) -> dict[str, Any]:
        assert (manager, subresource) == ("delayq-operator", "status")
        if self.gone:
            raise NotFound(404, "NotFound", "orders")
        self.written.append(body["status"])
        found = resource(status=body["status"], resourceVersion=str(100 + len(self.written)))
        return found.body

    def enqueue_in(self, _key: object, seconds: float) -> None:
        self.later.append(seconds)

    def post(self, _resource: object, reason: str, _message: str) -> None:
        self.posted.append(reason)

    async def report(self, seen: View) -> None:
        known = self.queues.get(seen.resource.key)
        assert known is not None
        await self.reporter.report(replace(seen, resource=known))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOW)
    monkeypatch.setattr(report, "time", clock)
    return clock


def exported(which: str) -> dict[str, float]:
    (family,) = getattr(metrics, which).collect()
    return {"/".join(sample.labels.values()): sample.value for sample in family.samples}


async def test_numbers_are_come_back_to(clock: Clock) -> None:
    world = World()
    await world.report(view())
    clock.now += 2
    more = view(backlog=replace(HEALTHY, read_at=clock.now, scheduled=5))
    await world.report(more)
    assert (len(world.written), world.later) == (1, [NUMBERS_SECONDS - 2])
    clock.now += NUMBERS_SECONDS
    await world.report(more)
    assert world.written[-1]["backlog"]["scheduled"] == 5


@pytest.mark.usefixtures("clock")
async def test_gauges_follow_and_forget() -> None:
    world, every = World(), ("WORKER_REPLICAS", "WORKER_LEAD", "WORKER_HANDLER")
    observed = Observed(lead_seconds=7.2, handler_seconds=0.4)
    await world.report(view(**scaled(DEMANDING), observed=observed))
    assert [exported(each) for each in every] == [
        {"shop/orders/current": 1, "shop/orders/desired": 10, "shop/orders/demand": DEMANDING.wanted},
        {"shop/orders": 7.2},
        {"shop/orders": 0.4},
    ]
    assert exported("QUEUES") == {"True": 1, "False": 0, "Unknown": 0}
    await world.report(view(missing=("Secret shop-db",)))
    assert exported("QUEUES") == {"True": 0, "False": 1, "Unknown": 0}
    world.reporter.forget(resource().key)
    assert [exported(each) for each in every] == [{}, {}, {}]
    assert exported("QUEUES") == {"True": 0, "False": 0, "Unknown": 0}
    assert (world.reporter._written_at, world.reporter._ready) == ({}, {})

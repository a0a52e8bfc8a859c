"""Which changes of a status become events."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.scaling import Sample
from delayq_operator.base.names import SUSPEND_RECONCILIATION
from delayq_operator.cache.workload import Workload
from delayq_operator.reconcile import report
from delayq_operator.reconcile.report import Reporter, turned
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Observed
from delayq_operator.scrape.shards import Down, ShardMap, Shards
from delayq_operator.scrape.worker_reports import GuardCounts, Seen
from delayq_operator.status.status import status

from tests.unit.operator.fakes import Clock
from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Kind
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
GUARDS = view(queue=GUARDED, workers=Seen(guard=GuardCounts(able=2)))
HALF_GUARDED = replace(GUARDS, workers=Seen(guard=GuardCounts(able=1, unable=1)))
UNGUARDED = replace(GUARDS, workers=Seen(guard=GuardCounts(unable=2)))
LATE = view(backlog=replace(HEALTHY, due=5, oldest_due_at=HEALTHY.read_at - 60))
LEFT_ALONE, MISSPELT = (
    view(resource=resource(annotations={SUSPEND_RECONCILIATION: word})) for word in ("true", "yes")
)
HELD = view(queue=queue(suspend=True))
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
    "lateness is reported once": ([FINE, LATE, LATE, FINE], ["Ready", "ObjectiveMissed", "", ""]),
    "a queue is suspended and resumed": ([FINE, HELD, HELD, FINE], ["Ready", "Suspended", "", "Resumed"]),
    "reconciliation is suspended and resumed": (
        [FINE, LEFT_ALONE, LEFT_ALONE, FINE],
        ["Ready", "ReconciliationSuspended", "", "ReconciliationResumed"],
    ),
    "a misspelt annotation suspends nothing": (
        [FINE, MISSPELT, MISSPELT, FINE],
        ["Ready", "InvalidAnnotation", "", ""],
    ),
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
    "a new queue at a Redis with a risk": ([RISKY, RISKY], ["Ready DurabilityAtRisk", ""]),
    "a shortfall comes into sight": (
        [FINE, COMING, COMING, FINE],
        ["Ready", "CapacityShortfallExpected", "", ""],
    ),
    # Each rush would be reported as a problem, and as its end.
    "workers on their way from none": ([view(**IDLE), NONE, WAKING, view(**IDLE)], ["Ready", "", "", ""]),
}


@pytest.mark.parametrize("story", STORIES)
def test_events_tell_what_changed(story: str) -> None:
    previous: dict[str, Any] = {}
    for seen, reasons in zip(*STORIES[story], strict=True):
        made = status(seen, previous, NOW)
        assert [reason for reason, _ in turned(previous, made)] == reasons.split()
        previous = made


class Recorder:
    """A Reporter at work: the API server takes each status, and what it posts and asks for is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.status = Clock(NOW), dict[str, Any]()
        self.events, self.again = list[str](), list[float]()
        monkeypatch.setattr(report, "time", self.clock)
        fake: Any = SimpleNamespace(
            apply=self.apply,
            schedules=None,
            wrote=lambda _: None,
            enqueue_in=lambda _, seconds: self.again.append(seconds),
            post=lambda _, reason, message: self.events.append(f"{reason}: {message}"),
        )
        self.reporter = Reporter(fake, fake, fake, fake)

    async def apply(self, _kind: Kind, body: dict[str, Any], **_: object) -> dict[str, Any]:
        self.status = body["status"]
        return body

    async def at(self, seconds: float, seen: View) -> list[str]:
        """The events of a report, so many seconds after the first one."""
        self.clock.now, self.events, self.again = NOW + seconds, [], []
        await self.reporter.report(replace(seen, resource=resource(self.status)))
        return self.events


async def test_a_queue_that_never_becomes_ready_has_an_event_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = Recorder(monkeypatch)
    assert await reported.at(0, STARTS) == []
    assert 60 in reported.again
    assert await reported.at(59, STARTS) == []
    [event] = await reported.at(60, STARTS)
    assert event.startswith("NotReady: ScannersNotReady: ")
    assert await reported.at(120, STARTS) == []


async def test_tasks_that_stay_parked_for_two_minutes_have_an_event_and_degrade_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported, parked = Recorder(monkeypatch), view(backlog=replace(HEALTHY, parked=3))

    def degraded() -> dict[str, Any]:
        return next(each for each in reported.status["conditions"] if each["type"] == "Degraded")

    await reported.at(0, parked)
    assert (120 in reported.again, degraded()["status"]) == (True, "False")
    assert await reported.at(119, parked) == []
    [event] = await reported.at(120, parked)
    assert event.startswith("TasksParked: ")
    assert degraded()["reason"] == "TasksParked"
    assert await reported.at(180, FINE) == []
    assert degraded()["reason"] == "AsExpected"

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
from delayq_operator.reconcile.apply import Outcome, Scaled
from delayq_operator.reconcile.report import Reporter, turned
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Learnt
from delayq_operator.scrape.backlog_cache import NUMBERS_SECONDS
from delayq_operator.scrape.shards import Down, ShardMap, Shards
from delayq_operator.status.status import status
from delayq_operator.status.view import Guarding

from tests.unit.operator.fakes import Clock
from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq_operator.status.view import View

DOWN = replace(HEALTHY, redis_up=False, whole=False)
STARTING = Workload(exists=True, wanted=1, pods=1, updated=1, current=True)
DEMANDING = decided(Sample(overdue=5_000), replicas=1)
PROBLEM = (Problem("spec.redis", "required"),)


def events(*views: View) -> list[list[str]]:
    """Reasons of the events that each view brings after the one before."""
    story: list[list[str]] = []
    previous: dict[str, Any] = {}
    for seen in views:
        made = status(seen, previous, NOW)
        story.append([reason for reason, _ in turned(previous, made)])
        previous = made
    return story


def test_a_queue_that_starts_is_ready_once() -> None:
    starting = view(scanner=STARTING, worker=STARTING, backlog=None)
    assert events(starting, starting, view(), view()) == [[], [], ["Ready"], []]


def test_redis_goes_and_comes_back() -> None:
    assert events(view(), view(backlog=DOWN), view(backlog=DOWN), view()) == [
        ["Ready"],
        ["NotReady", "BackendUnavailable"],
        [],
        ["Ready"],
    ]


def test_a_redis_that_was_never_reached_is_not_news_of_a_change() -> None:
    """The condition says it; an event would come with each new queue whose Redis starts a little later."""
    assert events(view(backlog=DOWN)) == [[]]


def test_one_server_of_several_goes_and_comes_back() -> None:
    shards = Shards(shard_map=ShardMap(1, 2, 2, 2), down=(Down(1, "timeout", "redis-1:6379"),))
    partly = view(queue=queue(shards=2), backlog=replace(HEALTHY, whole=False, shards=shards))
    whole = replace(partly, backlog=replace(HEALTHY, shards=Shards(shard_map=ShardMap(1, 2, 2, 2))))
    assert events(whole, partly, partly, whole) == [
        ["Ready"],
        ["NotReady", "BackendUnavailable"],
        [],
        ["Ready"],
    ]


def test_a_change_of_shards_begins_halts_and_ends() -> None:
    def seen(shard_map: ShardMap, **missing: Any) -> View:  # noqa: ANN401 -- the fields of Shards
        shards = Shards(shard_map=shard_map, **missing)
        reading = replace(HEALTHY, whole=not missing, whole_at=NOW - 60, shards=shards)
        return view(queue=queue(shards=4), backlog=reading)

    moving, settled = ShardMap(3, 4, 1, 4), seen(ShardMap(4, 4, 4, 4))
    assert events(
        view(),
        view(queue=queue(shards=4)),
        seen(ShardMap(2, 1, 1, 4)),
        seen(moving),
        seen(moving, unled=(2,)),
        seen(moving),
        settled,
        settled,
    ) == [["Ready"], ["ReshardingStarted"], [], [], ["ReshardingStalled"], [], ["ReshardingComplete"], []]


def test_the_way_back_to_one_shard_ends_with_an_event_though_the_condition_goes() -> None:
    def seen(shard_map: ShardMap) -> View:
        return view(backlog=replace(HEALTHY, shards=Shards(shard_map=shard_map)))

    four = view(queue=queue(shards=4), backlog=seen(ShardMap(4, 4, 4, 4)).backlog)
    begun, ended = seen(ShardMap(5, 1, 4, 1)), seen(ShardMap(6, 1, 1, 1))
    assert events(four, begun, ended) == [["Ready"], ["ReshardingStarted"], ["ReshardingComplete"]]


def test_a_new_queue_is_not_told_to_have_changed_its_shards() -> None:
    assert events(view(backlog=None), view()) == [["Ready"], []]


def test_a_guard_goes_and_comes_back() -> None:
    guarded = view(queue=queue(guard={"redisLock": {}}), guarding=Guarding(able=2))
    down = replace(guarded, guarding=Guarding(unable=2))
    half = replace(guarded, guarding=Guarding(able=1, unable=1))
    assert events(guarded, half, down, down, half, guarded) == [
        ["Ready"],
        [],
        ["NotReady", "GuardUnavailable"],
        [],
        ["Ready", "GuardAvailable"],
        [],
    ]


def test_a_guard_that_was_never_reached_is_not_news_of_a_change() -> None:
    """As for Redis: a new queue that does not get ready is told of after a minute."""
    assert events(view(queue=queue(guard={"redisLock": {}}), guarding=Guarding(unable=1))) == [[]]


def test_tasks_that_begin_too_late_are_told_once() -> None:
    late = view(backlog=replace(HEALTHY, due=5, oldest_due_at=HEALTHY.read_at - 60))
    assert events(view(), late, late, view()) == [["Ready"], ["ObjectiveMissed"], [], []]


def test_pausing_and_resuming() -> None:
    paused = view(resource=resource(annotations={"delayq.dev/paused": "true"}))
    assert events(view(), paused, view()) == [["Ready"], ["Paused"], ["Resumed"]]


def test_what_does_not_pause_is_told() -> None:
    misspelt = view(resource=resource(annotations={"delayq.dev/paused": "yes"}))
    assert events(view(), misspelt, misspelt, view()) == [["Ready"], ["InvalidAnnotation"], [], []]


def test_a_spec_that_is_refused_and_corrected() -> None:
    broken = view(problems=PROBLEM, scale=None)
    assert events(view(), broken, broken, view()) == [
        ["Ready"],
        ["NotReady", "InvalidSpec"],
        [],
        ["Ready"],
    ]


def test_a_secret_that_is_missing_from_the_beginning() -> None:
    assert events(view(missing=("Secret shop-db",))) == [["ReferenceNotFound"]]


def test_one_reason_after_another_is_told_each_time() -> None:
    assert events(
        view(taken=("ConfigMap orders-config",)),
        view(failures=("CronJob orders-reaper: no.",)),
        view(foreign=("container proxy",)),
        view(),
    ) == [["Ready", "NameConflict"], ["ApplyFailed"], ["UnmanagedFields"], []]


def test_risks_and_rollouts_that_hang() -> None:
    assert events(
        view(),
        view(backlog=replace(HEALTHY, risks=("evicts",))),
        view(backlog=replace(HEALTHY, risks=("append_only_off",))),
        view(worker=replace(RUNNING, updated=0, stuck="timed out")),
    ) == [["Ready"], ["DurabilityAtRisk"], [], ["ProgressDeadlineExceeded"]]


def test_a_message_says_why() -> None:
    previous = status(view(), {}, NOW)
    told = dict(turned(previous, status(view(backlog=DOWN), previous, NOW)))
    assert told["NotReady"].startswith("Unreachable: Scanners cannot reach Redis")


def test_a_shortfall_is_told_when_it_comes_into_sight() -> None:
    coming = view(learnt=Learnt(rush=Rush(at=NOW + 600, needed=63, late_seconds=660)))
    assert events(view(), coming, coming, view()) == [["Ready"], ["CapacityShortfallExpected"], [], []]


def test_workers_on_their_way_from_none_are_no_news() -> None:
    """Each rush would be told as trouble, and as its end."""
    idle = scaled(decided(Sample(), replicas=0))
    none, waking = (
        view(worker=Workload(exists=True, current=True), **idle),
        view(worker=STARTING, **idle, learnt=Learnt(waking=True)),
    )
    assert events(view(**idle), none, waking, view(**idle)) == [["Ready"], [], [], []]


# --- What is written.


class World:
    """A reporter, with an API server that takes status, and what it is told."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.posted: list[str] = []
        self.records: list[str] = []
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

    def mark_in(self, _key: object, seconds: float) -> None:
        self.later.append(seconds)

    def post(self, _resource: object, reason: str, _message: str, record: str = "") -> None:
        self.posted.append(reason)
        self.records.append(record)

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


async def test_a_status_is_written_once_and_then_when_it_says_something_new(clock: Clock) -> None:
    world = World()
    for _ in range(3):
        await world.report(view())
        clock.now += 60
    assert (len(world.written), world.posted, world.later) == (1, ["Ready"], [])
    await world.report(view(missing=("Secret shop-db",)))
    assert (len(world.written), world.posted[1:]) == (2, ["NotReady", "ReferenceNotFound"])


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
async def test_a_delayqueue_that_went_meanwhile_is_nothing_to_complain_of() -> None:
    world = World()
    world.gone = True
    await world.report(view())
    assert world.written == []


def test_a_number_that_was_changed_is_told_with_what_it_was_made_from() -> None:
    world = World()
    world.reporter.tell(resource(), Outcome(scaled=Scaled(reason="ScaledUp", message="1 → 2", record="{}")))
    assert (world.posted, world.records) == (["ScaledUp"], ["{}"])


@pytest.mark.usefixtures("clock")
async def test_what_was_decided_and_learnt_is_exported() -> None:
    world = World()
    learnt = Learnt(lead_seconds=7.2, handler_seconds=0.4)
    await world.report(view(**scaled(DEMANDING), learnt=learnt))
    assert exported("WORKER_REPLICAS") == {
        "shop/orders/current": 1,
        "shop/orders/desired": 10,
        "shop/orders/demand": DEMANDING.wanted,
    }
    assert (exported("WORKER_LEAD"), exported("WORKER_HANDLER")) == (
        {"shop/orders": 7.2},
        {"shop/orders": 0.4},
    )
    world.reporter.forget(resource().key)
    assert [exported(each) for each in ("WORKER_REPLICAS", "WORKER_LEAD", "WORKER_HANDLER")] == [{}, {}, {}]


@pytest.mark.usefixtures("clock")
async def test_gauges_follow_and_forget() -> None:
    world = World()
    await world.report(view())
    assert exported("WORKER_REPLICAS") == {"shop/orders/current": 1, "shop/orders/desired": 1}
    assert exported("QUEUES") == {"True": 1, "False": 0, "Unknown": 0}
    await world.report(view(missing=("Secret shop-db",)))
    assert exported("QUEUES") == {"True": 0, "False": 1, "Unknown": 0}
    world.reporter.forget(resource().key)
    assert exported("WORKER_REPLICAS") == {}
    assert exported("QUEUES") == {"True": 0, "False": 0, "Unknown": 0}
    assert (world.reporter._written_at, world.reporter._ready) == ({}, {})

"""Workers are scraped in their turns; what they report counts while it is fresh, and a change of it is reconciled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract.files import Reference
from delayq_operator.cache.queues import Queues
from delayq_operator.scaling import workers
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scaling.workers import AGAIN_SECONDS, MOST_AT_ONCE, RARELY_SECONDS, Workers
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS
from delayq_operator.scrape.changes import NUMBERS_SECONDS
from delayq_operator.scrape.lateness import WINDOW_SECONDS, StartedTasks
from delayq_operator.scrape.worker_reports import GuardCounts, Report, guard_counts

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import ORDERS, known
from tests.unit.operator.scrape.test_exposition import POD
from tests.unit.operator.scrape.test_lateness import began
from tests.unit.operator.scrape.test_worker_stats import says

if TYPE_CHECKING:
    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod

NOW = 1_000_000.0
GUARD: dict[str, Any] = {"guard": {"redisLock": {}}}
SCALED: dict[str, Any] = {"autoscaling": {}}
W = replace(POD, name="w", component="worker", address="10.0.0.1", ready=True)


def worker(name: str, age: float = 100.0, **fields: Any) -> Pod:  # noqa: ANN401 -- the fields of Pod
    made: dict[str, Any] = {"name": name, "created_at": NOW - age, "ready": False} | fields
    return replace(W, **made)


def up(value: float) -> list[Sample]:
    return [("delayq_worker_guard_up", {"queue": "orders"}, value)]


class World:
    """The workers of ORDERS, and the delay of each reconciliation."""

    def __init__(self, *pods: Pod, **spec: Any) -> None:  # noqa: ANN401
        self.pods, self.waits, self.version = list(pods), list[float](), 100
        self.queues = Queues(lambda _: None)
        inventory = SimpleNamespace(queues=self.queues, pods=SimpleNamespace(of=lambda _: self.pods))
        configs = ScalingConfigs(self.queues)
        self.workers = Workers(cast("Inventory", inventory), configs, cast("WorkQueue", self))
        self.edit(**spec)

    def edit(self, **spec: Any) -> None:  # noqa: ANN401
        self.version += 1
        self.queues.seen(known(ORDERS, 10, self.version, **spec))

    def enqueue_in(self, _key: Key, seconds: float) -> None:
        self.waits.append(seconds)

    def due(self) -> list[str]:
        return [pod.name for pod in self.workers.due(ORDERS)]

    def take(self, name: str, samples: list[Sample]) -> None:
        pod = next(pod for pod in self.pods if pod.name == name)
        self.workers.take(ORDERS, pod, samples)
        self.workers.enqueue_on_change(ORDERS)

    @property
    def guard(self) -> GuardCounts:
        return self.workers.seen(ORDERS).guard


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOW)
    monkeypatch.setattr(workers, "time", clock)
    return clock


# --- Whom to scrape.


def test_who_is_on_its_way_is_asked_soon_again_and_others_in_turn(clock: Clock) -> None:
    pods = [worker("old", ready=True), worker("new", 3)]
    # The addresses of these may be others' now.
    world = World(*pods, worker("leaves", 3, leaving=True), worker("failed", 3, failed=True), **SCALED)
    assert world.due() == ["old", "new"]
    world.take("old", says(NOW - 50))
    for at, due in ((0.5, []), (2, ["new"]), (AGAIN_SECONDS, ["old", "new"])):
        clock.now = NOW + at
        assert world.due() == due


@pytest.mark.parametrize(
    "silent", [worker("w", ready=True), worker("w", 70), worker("w", trouble="w: crashes")]
)
def test_one_that_stays_silent_is_asked_no_more_often_than_one_that_speaks(silent: Pod, clock: Clock) -> None:
    """A worker that hangs costs a second each time."""
    world, asked = World(silent, **SCALED), []
    for at in (0, 2, 4, AGAIN_SECONDS, AGAIN_SECONDS + 2):
        clock.now = NOW + at
        asked.append(bool(world.due()))
    assert asked == [True, False, False, True, False]
    clock.now = NOW - 3600
    assert world.due(), "the clock was put back"


def test_new_ones_that_hang_do_not_take_the_turns_of_those_that_claim(clock: Clock) -> None:
    hangs = [worker(f"h{n:03}", 3) for n in range(3 * MOST_AT_ONCE)]
    world, asked = World(*hangs, worker("speaks", ready=True), **SCALED), list[str]()
    for n in range(8):
        clock.now = NOW + 2 * n
        asked += world.due()
    assert asked.count("speaks") == 2
    assert set(asked) == {pod.name for pod in world.pods}


def test_each_is_asked_for_its_guard_in_turn_and_soon_again_when_it_has_just_said_no(clock: Clock) -> None:
    world = World(W, **GUARD)
    assert world.due() == ["w"]
    for said, early, due in ((1, AGAIN_SECONDS - 1, AGAIN_SECONDS), (0, 0, 1), (0, 1, AGAIN_SECONDS)):
        world.take("w", up(said))
        clock.now, at = clock.now + early, clock.now
        assert world.due() == []
        clock.now = at + due
        assert world.due() == ["w"]


def test_for_lateness_alone_workers_are_asked_rarely_and_without_a_valid_spec_never(clock: Clock) -> None:
    world = World(W)
    assert world.due() == ["w"]
    clock.now += RARELY_SECONDS - 1
    assert world.due() == []
    clock.now += 1
    assert world.due() == ["w"]
    clock.now += 3600
    world.edit(objective={"latenessMilliseconds": -1})
    assert world.due() == []


# --- What they report.


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ((), GuardCounts()),
        ((1,), GuardCounts(able=1)),
        ((0,), GuardCounts()),  # so does every worker before its first look
        ((0, 1), GuardCounts(able=1)),
        ((0, 0), GuardCounts(unable=1)),
        ((1, 0), GuardCounts(able=1)),
        ((1, 0, 0), GuardCounts(unable=1)),
        ((1, 0, 1, 0), GuardCounts(able=1)),
        ((0, 0, 1), GuardCounts(able=1)),
        ((0, 0, 0, 0), GuardCounts(unable=1)),
        ((float("nan"), -1.0), GuardCounts()),
    ],
)
def test_a_worker_that_cannot_has_to_say_so_twice(said: tuple[float, ...], seen: GuardCounts) -> None:
    report = Report()
    for value in said:
        report = report.next(up(value), NOW)
    assert guard_counts([report], NOW) == seen


def test_what_is_old_and_those_that_are_gone_count_for_nothing(clock: Clock) -> None:
    world = World(W, **GUARD)
    world.take("w", up(1))
    clock.now += FRESH_SECONDS - 0.1
    assert world.guard == GuardCounts(able=1)
    clock.now += 0.1
    assert world.guard == GuardCounts()
    world.take("w", up(1))
    world.pods = [replace(W, leaving=True)]
    world.due()
    assert world.guard == GuardCounts()
    world.pods = [W]
    world.take("w", up(1))
    world.edit()
    assert world.guard == GuardCounts(), "the spec has no guard any more"


def test_changes_are_reported_and_one_worker_does_not_speak_for_those_that_could(clock: Clock) -> None:
    """It may be on a node that resolves no names: were the number held then, no other worker would ever start."""
    world, found = World(W, replace(W, name="v"), replace(W, name="u"), **GUARD), []
    for name, value in (("w", 1), ("w", 1), ("w", 0), ("w", 0), ("v", 0), ("v", 0), ("u", 1)):
        clock.now += 1
        world.take(name, up(value))
        found.append((len(world.waits), world.workers.seen(ORDERS).guard_down))
    one, both = (2, False), (3, True)
    assert found == [(1, False), (1, False), (1, False), one, one, both, (4, False)]
    assert world.waits == [0, 0, NUMBERS_SECONDS - 2, 0], "two instead of one are a number"
    clock.now += FRESH_SECONDS
    world.workers.enqueue_on_change(ORDERS)
    assert len(world.waits) == 5, "what was said is old"


TOKEN = {"name": "shop", "key": "token"}
HTTP = {"url": "https://shop/", "secretHeaders": {"Authorization": TOKEN}}
KEY = Reference("Secret", "shop", "token")


def test_keys_that_workers_wait_for_count_while_they_are_news_and_in_the_spec(clock: Clock) -> None:
    """A tenant's image can put no words of its own into the status; a change of the awaited secret is reconciled."""
    world = World(worker("w"), worker("ready", ready=True), handler={"http": HTTP})
    assert world.due() == ["w", "ready"]
    clock.now += AGAIN_SECONDS
    assert world.due() == ["w"], "one that is ready waits for nothing"
    said: list[Sample] = [
        ("delayq_missing_references", {"queue": "orders", "kind": kind, "name": name, "key": key}, 1.0)
        for kind, name, key in (KEY, ("Secret", "other", "token"), ("call", "555-0100", ""))
    ]
    world.take("w", said)
    assert world.workers.seen(ORDERS).missing == (KEY,)
    world.workers.enqueue_on_change(ORDERS)
    assert world.waits == [0]
    clock.now += FRESH_SECONDS
    assert world.workers.seen(ORDERS).missing == ()
    world.take("w", said)
    world.pods = [worker("w", ready=True)]
    assert world.workers.seen(ORDERS).missing == ()


def test_a_missed_objective_is_reported_when_it_is_missed_and_when_that_is_over(clock: Clock) -> None:
    world = World(worker("w", -1), objective={"latenessMilliseconds": 1000})
    world.take("w", began(98, late=1))
    assert (world.workers.seen(ORDERS).started, world.waits) == (StartedTasks(99, 1), [0])
    clock.now += WINDOW_SECONDS - 1
    world.take("w", began(98, late=1))
    assert world.waits == [0]
    clock.now += 1
    world.take("w", began(98, late=1))
    assert (world.workers.seen(ORDERS).started, world.waits) == (StartedTasks(), [0, 0])


def test_what_started_before_the_operator_or_before_another_objective_is_not_counted() -> None:
    world = World(worker("w"), objective={"latenessMilliseconds": 1000})
    world.take("w", began(10, late=1))
    assert world.workers.seen(ORDERS).started == StartedTasks()
    world.take("w", began(10, late=3))
    assert world.workers.seen(ORDERS).started == StartedTasks(2, 2)
    world.edit(objective={"latenessMilliseconds": 5000})
    world.take("w", began(12, late=3))
    assert world.workers.seen(ORDERS).started == StartedTasks()


def test_workers_teach_while_the_operator_scales_and_an_earlier_operators_numbers_are_taken_up() -> None:
    world = World(worker("w", 20))
    world.take("w", says(NOW - 2, total=4, count=8))
    assert world.workers.stats(ORDERS).lead.seconds is None
    world.edit(**SCALED)
    world.take("w", says(NOW - 2, total=4, count=8))
    assert (world.workers.stats(ORDERS).lead.seconds, world.workers.stats(ORDERS).handler.seconds) == (
        27,
        0.5,
    )
    again = known(ORDERS, 10, 200, **SCALED) | {"status": {"scaling": {"leadTimeSeconds": 8}}}
    again["metadata"]["uid"] = "another"
    world.queues.seen(again)
    assert world.workers.stats(ORDERS).lead.seconds == 8

"""Whether workers can use their guard is what they say themselves, twice when it is no, and only while it is news."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq_operator.cache.queues import Queues
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS
from delayq_operator.status import guards
from delayq_operator.status.guards import AGAIN_SECONDS, Guards, Watch
from delayq_operator.status.view import GuardCounts

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import ORDERS, Enqueued, known
from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod

NOW = 1_000_000.0
W = replace(POD, name="w", component="worker", address="10.0.0.1", ready=True)
GUARD: Any = {"redisLock": {}}


def up(value: float) -> list[Sample]:
    return [("delayq_worker_guard_up", {"queue": "orders"}, value)]


def watched(*values: float, pod: Pod = W) -> Watch:
    watch = Watch()
    for value in values:
        watch.take(pod, up(value), NOW)
    return watch


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
    ],
)
def test_a_worker_that_cannot_has_to_say_so_twice(said: tuple[float, ...], seen: GuardCounts) -> None:
    assert watched(*said).seen(NOW) == seen


def test_nonsense_what_is_old_and_those_that_are_gone_count_for_nothing() -> None:
    assert watched(float("nan"), -1.0).seen(NOW) == GuardCounts()
    assert watched(1).seen(NOW + FRESH_SECONDS - 0.1) == GuardCounts(able=1)
    assert watched(1).seen(NOW + FRESH_SECONDS) == GuardCounts()
    watch = watched(0, 0)
    watch.to_ask([replace(W, leaving=True)], NOW)
    assert watch.seen(NOW) == GuardCounts()


def test_each_is_asked_in_its_turn_and_soon_again_when_it_has_just_said_no() -> None:
    watch = Watch()
    assert watch.to_ask([W], NOW) == [W]
    watch.take(W, up(1), NOW)
    assert watch.to_ask([W], NOW + AGAIN_SECONDS - 1) == []
    assert watch.to_ask([W], NOW + AGAIN_SECONDS) == [W]
    watch.take(W, up(0), NOW + AGAIN_SECONDS)
    assert watch.to_ask([W], NOW + AGAIN_SECONDS + 1) == [W]
    watch.take(W, up(0), NOW + AGAIN_SECONDS + 1)
    assert watch.to_ask([W], NOW + AGAIN_SECONDS + 2) == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOW)
    monkeypatch.setattr(guards, "time", clock)
    return clock


class Queue:
    """A queue with a guard, and what its workers say of it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.enqueued, self.queues = clock, Enqueued(), Queues(lambda _: None)
        self.guards = Guards(ScalingConfigs(self.queues), cast("WorkQueue", self.enqueued))
        self.queues.seen(known(ORDERS, 10, guard=GUARD))

    def says(self, name: str, *values: float) -> None:
        watch = self.guards.watch(ORDERS)
        assert watch is not None
        for value in values:
            watch.take(replace(W, name=name), up(value), self.clock.now)

    def told(self) -> int:
        """How often a reconciliation was asked for by now."""
        self.guards.enqueue_on_change(ORDERS)
        return self.enqueued.times


def test_a_reconciliation_is_asked_for_when_there_is_something_to_tell(clock: Clock) -> None:
    one, found = Queue(clock), []
    for value in (1, 1, 0, 0, 0, 1):
        one.says("w", value)
        found.append(one.told())
    clock.now += FRESH_SECONDS
    # The first time, when it is down, when it is back; and when what was said is old.
    assert [*found, one.told()] == [1, 1, 1, 2, 2, 3, 4]


def test_one_worker_that_cannot_use_the_guard_does_not_speak_for_those_that_could(clock: Clock) -> None:
    """It may be on a node that resolves no names: were the number held then, no other worker would ever start."""
    one = Queue(clock)
    one.says("w", 0, 0)
    assert one.guards.seen(ORDERS).down
    assert not one.guards.down(ORDERS)
    one.says("v", 0, 0)
    assert one.guards.down(ORDERS)
    one.says("u", 1)
    assert not one.guards.down(ORDERS)

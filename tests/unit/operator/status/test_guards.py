"""Whether workers can use their guard is what they say themselves, twice when it is no, and only while it is news."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq_operator.cache.queues import Queues
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS
from delayq_operator.status import guards
from delayq_operator.status.guards import AGAIN_SECONDS, Guards, Watch
from delayq_operator.status.view import Guarding

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import ORDERS, Marks, known
from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work import Work
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
        ((), Guarding()),
        ((1,), Guarding(able=1)),
        ((0,), Guarding()),  # so does every worker before its first look
        ((0, 1), Guarding(able=1)),
        ((0, 0), Guarding(unable=1)),
        ((1, 0), Guarding(able=1)),
        ((1, 0, 0), Guarding(unable=1)),
        ((1, 0, 1, 0), Guarding(able=1)),
        ((0, 0, 1), Guarding(able=1)),
        ((0, 0, 0, 0), Guarding(unable=1)),
    ],
)
def test_a_worker_that_cannot_has_to_say_so_twice(said: tuple[float, ...], seen: Guarding) -> None:
    assert watched(*said).seen(NOW) == seen


def test_one_that_tells_nothing_or_nonsense_counts_for_nothing() -> None:
    watch = Watch()
    for value in (float("nan"), -1.0):
        watch.take(W, up(value), NOW)
    watch.take(W, [("delayq_worker_busy_slots", {}, 1.0)], NOW)
    assert watch.seen(NOW) == Guarding()


def test_what_was_said_is_believed_for_a_while() -> None:
    watch = watched(1)
    assert watch.seen(NOW + FRESH_SECONDS - 0.1) == Guarding(able=1)
    assert watch.seen(NOW + FRESH_SECONDS) == Guarding()


def test_the_guard_is_down_only_when_nobody_can_use_it() -> None:
    watch = watched(0, 0)
    assert watch.seen(NOW).down
    watch.take(replace(W, name="v"), up(1), NOW)
    assert watch.seen(NOW) == Guarding(able=1, unable=1)
    assert not watch.seen(NOW).down
    assert not Guarding().down


def test_those_that_are_gone_do_not_count() -> None:
    watch = watched(0, 0)
    watch.to_ask([replace(W, leaving=True)], NOW)
    assert watch.seen(NOW) == Guarding()


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


def test_of_too_many_those_that_were_asked_longest_ago_are_asked() -> None:
    watch, pods = Watch(), [replace(W, name=f"w{n:02}") for n in range(worker_stats.MOST_AT_ONCE + 1)]
    first = watch.to_ask(pods, NOW)
    assert first == pods[:-1]
    assert watch.to_ask(pods, NOW + AGAIN_SECONDS)[0] == pods[-1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOW)
    monkeypatch.setattr(guards, "time", clock)
    return clock


def told(*steps: float, clock: Clock) -> list[int]:
    """How often a reconciliation was asked for after each thing that a worker said."""
    queues, marks = Queues(lambda _: None), Marks()
    queues.seen(known(ORDERS, 10, guard=GUARD))
    made = Guards(ScalingConfigs(queues), cast("Work", marks))
    found = []
    for value in steps:
        watch = made.watch(ORDERS)
        assert watch is not None
        watch.take(W, up(value), clock.now)
        made.tell(ORDERS)
        found.append(marks.of[ORDERS])
    clock.now += FRESH_SECONDS
    made.tell(ORDERS)
    return [*found, marks.of[ORDERS]]


def test_a_reconciliation_is_asked_for_when_there_is_something_to_tell(clock: Clock) -> None:
    # The first time, when it is down, when it is back; and when what was said is old.
    assert told(1, 1, 0, 0, 0, 1, clock=clock) == [1, 1, 1, 2, 2, 3, 4]


def test_one_worker_that_cannot_use_the_guard_does_not_speak_for_those_that_could(clock: Clock) -> None:
    """It may be on a node that resolves no names: were the number held then, nobody else would ever start."""
    queues, marks = Queues(lambda _: None), Marks()
    made = Guards(ScalingConfigs(queues), cast("Work", marks))
    queues.seen(known(ORDERS, 10, guard=GUARD))
    watch = made.watch(ORDERS)
    assert watch is not None
    for value in (0, 0):
        watch.take(W, up(value), clock.now)
    assert made.seen(ORDERS).down
    assert not made.down(ORDERS)
    for value in (0, 0):
        watch.take(replace(W, name="v"), up(value), clock.now)
    assert made.down(ORDERS)
    watch.take(replace(W, name="u"), up(1), clock.now)
    assert not made.down(ORDERS)


def test_a_queue_without_a_guard_is_nobodys_business(clock: Clock) -> None:
    queues, marks = Queues(lambda _: None), Marks()
    made = Guards(ScalingConfigs(queues), cast("Work", marks))
    queues.seen(known(ORDERS, 10, guard=GUARD))
    watch = made.watch(ORDERS)
    assert watch is not None
    for pod in (W, replace(W, name="v")):
        for value in (0, 0):
            watch.take(pod, up(value), clock.now)
    assert made.down(ORDERS)
    queues.seen(known(ORDERS, 10, version=101, guard=None))
    assert made.watch(ORDERS) is None
    assert not made.down(ORDERS)

"""Whether workers can use their guard is what they say themselves, twice when it is no, and only while it is news."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

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
    watch, now = Watch(), NOW
    assert watch.to_ask([W], now) == [W]
    for said, early, due in ((1, AGAIN_SECONDS - 1, AGAIN_SECONDS), (0, 0, 1), (0, 1, AGAIN_SECONDS)):
        watch.take(W, up(said), now)
        assert watch.to_ask([W], now + early) == []
        now += due
        assert watch.to_ask([W], now) == [W]


def test_changes_are_told_and_one_worker_does_not_speak_for_those_that_could(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be on a node that resolves no names: were the number held then, no other worker would ever start."""
    clock, work, queues = Clock(NOW), Enqueued(), Queues(lambda _: None)
    monkeypatch.setattr(guards, "time", clock)
    queues.seen(known(ORDERS, 10, guard={"redisLock": {}}))
    of_all, found = Guards(ScalingConfigs(queues), cast("WorkQueue", work)), []
    for name, value in (("w", 1), ("w", 1), ("w", 0), ("w", 0), ("v", 0), ("v", 0), ("u", 1)):
        watch = of_all.watch(ORDERS)
        assert watch is not None
        watch.take(replace(W, name=name), up(value), NOW)
        of_all.enqueue_on_change(ORDERS)
        found.append((work.times, of_all.down(ORDERS)))
    one, both = (2, False), (3, True)
    assert found == [(1, False), (1, False), (1, False), one, one, both, (4, False)]
    clock.now += FRESH_SECONDS
    of_all.enqueue_on_change(ORDERS)
    assert work.times == 5, "what was said is old"

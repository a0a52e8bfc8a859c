"""Workers are asked in their turns; what one says, or does not, spoils nothing of what others teach."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq_operator.cache.queues import Queues
from delayq_operator.polling import worker_poller
from delayq_operator.polling.worker_poller import WorkerPoller
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.worker_stats import WorkerStats
from delayq_operator.status import guards, lateness
from delayq_operator.status.guards import Guards
from delayq_operator.status.lateness import AGAIN_SECONDS, Lateness, Latenesses, counted
from delayq_operator.status.missing import MissingReferences
from delayq_operator.status.view import WINDOW_SECONDS, StartedTasks

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import (
    ORDERS,
    Answers,
    Enqueued,
    Evaluations,
    known,
)
from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scrape.exposition import Client, Question

WORKER: list[Sample] = [
    ("delayq_worker_busy_slots", {"queue": "orders"}, 3.0),
    ("delayq_worker_first_claim_timestamp_seconds", {"queue": "orders"}, 1_000_000.0),
    ("delayq_worker_handler_seconds_sum", {"queue": "orders"}, 30.0),
    ("delayq_worker_handler_seconds_count", {"queue": "orders"}, 60.0),
]


def began(in_time: float, *, late: float = 0.0, at: float = 1.0) -> list[Sample]:
    """A histogram with a bound at the objective of one second, and one above."""
    name = "delayq_worker_due_to_claimed_seconds_bucket"
    counts = {"0.5": in_time, str(at): in_time, "5.0": in_time + late, "+Inf": in_time + late}
    return [(name, {"queue": "orders", "le": le}, count) for le, count in counts.items()]


W = replace(POD, name="w", component="worker", created_at=999_980.0, address="10.0.0.1")


class World:
    """The workers of ORDERS, and what they say."""

    def __init__(self, *pods: Pod, **said: list[Sample] | str) -> None:
        queues, self.evaluations = Queues(lambda _: None), Evaluations(*pods)
        queues.seen(known(ORDERS, 10, autoscaling={}))
        self.stats, self.queues, self.answers = self.evaluations.known, queues, Answers(**said)
        inventory: Any = SimpleNamespace(queues=queues)
        configs, self.enqueued = ScalingConfigs(queues), Enqueued()
        work, scaler = cast("WorkQueue", self.enqueued), cast("Autoscaler", self.evaluations)
        guards, self.lateness = Guards(configs, work), Latenesses(configs, work)
        missing = MissingReferences(configs, work)
        self.survey = WorkerPoller(
            inventory, configs, scaler, guards=guards, lateness=self.lateness, missing=missing
        )

    async def visit(self) -> float:
        return await self.survey._visit(cast("Client", self.answers), ORDERS)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_poller, "time", clock)
    monkeypatch.setattr(guards, "time", clock)
    monkeypatch.setattr(lateness, "time", clock)
    return clock


async def test_workers_teach_and_one_that_does_not_answer_or_breaks_what_takes_it_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = WorkerStats.take

    def broken(self: WorkerStats, pod: Pod, said: list[Sample], now: float) -> None:
        if pod.name == "odd":
            raise OverflowError
        take(self, pod, said, now)

    monkeypatch.setattr(WorkerStats, "take", broken)
    pods = (replace(W, name="odd"), W, replace(W, name="mute"))
    world = World(*pods, w=WORKER, mute="mute refused", odd=WORKER)
    assert await world.visit() == worker_stats.SOON_SECONDS
    assert world.answers.asked == ["odd", "w", "mute"]
    assert (world.stats.lead.seconds, world.stats.handler.seconds) == (30, 0.5)
    assert caplog.messages == ["scrape_crashed"]


@pytest.mark.parametrize(
    "then",
    [[], [replace(W, leaving=True)], [replace(W, address="10.0.0.2")], [replace(W, uid="v")]],
    ids=["gone", "leaving", "elsewhere", "another"],
)
async def test_an_answer_teaches_nothing_when_the_address_may_be_anothers_by_now(then: list[Pod]) -> None:
    world = World(W, w=WORKER)

    class Meanwhile(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:
            world.evaluations.pods = then
            return await super().ask(pod, question)

    world.answers = Meanwhile(w=WORKER)
    await world.visit()
    assert (world.stats.lead.seconds, world.stats.handler.seconds) == (None, None)


async def test_those_that_hang_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that wait for a place meanwhile."""
    monkeypatch.setattr(worker_poller, "WORKERS_SECONDS", 0.05)
    monkeypatch.setattr(worker_poller, "AT_ONCE", (4, 2))
    world = World(*(replace(W, name=f"w{n:02}") for n in range(20)))

    class Hangs(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:  # noqa: ARG002
            return await asyncio.sleep(60, "")

    world.answers = Hangs()
    async with asyncio.timeout(5):
        await world.visit()
    assert world.stats.lead.seconds is None


async def test_a_queue_that_somebody_else_scales_is_asked_for_its_lateness_alone(clock: Clock) -> None:
    world = World(W, w=[*WORKER, *began(10, late=1)])
    world.queues.seen(known(ORDERS, 10, version=101))
    for _ in range(4):
        assert await world.visit() == worker_poller.IDLE_SECONDS
        clock.now += worker_poller.IDLE_SECONDS
    assert world.answers.asked == ["w", "w"]
    assert world.stats.lead.seconds is None
    assert world.lateness.seen(ORDERS) == StartedTasks(0, 0), (
        "it had counted those before this operator listened"
    )


async def test_who_misses_the_objective_is_marked_when_it_does_and_when_that_is_over(clock: Clock) -> None:
    world = World(replace(W, created_at=clock.now + 1), w=began(98, late=1))
    world.queues.seen(known(ORDERS, 10, version=101, objective={"latenessMilliseconds": 1000}))
    await world.visit()
    assert world.lateness.seen(ORDERS) == StartedTasks(99, 1)
    assert world.enqueued.times == 1
    for _ in range(3):
        clock.now += AGAIN_SECONDS
        await world.visit()
    assert world.enqueued.times == 1
    clock.now += WINDOW_SECONDS
    await world.visit()
    assert (world.lateness.seen(ORDERS), world.enqueued.times) == (StartedTasks(), 2)


def test_what_a_histogram_counts_between_two_bounds_is_in_proportion_and_one_that_is_none_counts_nothing() -> (
    None
):
    """Of eight between 1 and 5 s, half are taken to be later than 3 s."""
    for labels, count in (({}, 5.0), ({"le": "+Inf"}, float("nan")), ({"le": "x"}, 1e300)):
        assert counted([("delayq_worker_due_to_claimed_seconds_bucket", labels, count)], 1.0) is None
    assert counted(began(10, late=8), 1.0) == StartedTasks(18, 8)
    assert counted(began(10, late=8), 3.0) == StartedTasks(18, 4)
    assert counted(began(10, late=8), 5.0) == counted(began(10, late=8), 86_400) == StartedTasks(18, 0)
    watch = Lateness(1.0, since=0.0)
    watch.take(W, began(10, late=2), 1_000_000.0)
    watch.take(W, began(3, late=1), 1_000_010.0)
    assert watch.seen(1_000_010.0) == StartedTasks(16, 3), "a container that started anew counts from zero"
